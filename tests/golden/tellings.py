"""Commands that need no node: what `check` says of a policy, and what is wrong use."""

from typing import Final

from tests.golden.parts import Told
from tests.golden.policies import EVICT, VERIFF, WARN, declared, kill, policy, rule

GOOD: Final = policy(rule(WARN, kill(after="2s")), mode="observe", more='[brakes]\nowner = "3 per 10m"\n')
BAD: Final = policy(
    rule(kill(above="110%"), EVICT.replace("0s", "soon") + "\nbogus = 1", kill(above="9%")),
    rule(WARN, match="{ namespace = 1 }"),
    mode="force",
    declarations=declared('resource = "a"\nlabel = "b"') + declared('resource = "c"', "many"),
    allowance='[allowance]\npercent = "nan%"\n',
    more='[brakes]\nowner = "many"\n[protect]\npriority_at_least = "x"\n[journal]\nmax_size = "-1"\n',
)
WARNED: Final = policy(
    rule(kill()),
    rule(WARN, name="never"),
    mode="enforce",
    more='[protect]\npods = ["*/dcgm"]\n',
)

TELLINGS: Final = (
    Told(name="check_good", keeps="A good policy: exit 0.", arguments=("check", "POLICY"), policy=GOOD),
    Told(name="check_bad", keeps="Every mistake, with its place: exit 1.", arguments=("check", "POLICY"), policy=BAD),
    Told(name="check_warned", keeps="Warnings are no mistakes.", arguments=("check", "POLICY"), policy=WARNED),
    Told(
        name="check_syntax",
        keeps="What is no TOML is one line with its position.",
        arguments=("check", "POLICY"),
        policy=f"{VERIFF}mode = = 1\n",
    ),
    Told(name="check_missing", keeps="No file: exit 1.", arguments=("check", "POLICY")),
    Told(
        name="run_bad_policy",
        keeps="The daemon does not begin with a bad policy, and says what `check` says.",
        arguments=("run", "--policy", "POLICY", "--listen", "127.0.0.1:0", "--journal", "ROOT/j.db", "--node", "n1"),
        policy=BAD,
    ),
    Told(name="wrong_option", keeps="An unknown option: exit 2.", arguments=("scan", "--bogus")),
    Told(name="wrong_command", keeps="An unknown command: exit 2.", arguments=("bogus",)),
    Told(name="check_nothing", keeps="A missing argument: exit 2.", arguments=("check",)),
    Told(name="wrong_since", keeps="A span that is none: exit 2.", arguments=("history", "--since", "soon")),
    Told(
        name="history_no_journal",
        keeps="No journal: exit 1.",
        arguments=("history", "--json", "--journal", "ROOT/j.db"),
    ),
    Told(
        name="explain_nobody",
        keeps="Neither a daemon nor a journal: exit 1.",
        arguments=("explain", "ns/hog", "--url", "http://127.0.0.1:1", "--journal", "ROOT/j.db"),
    ),
    Told(
        name="rights_of_policy",
        keeps="What the policy needs of the API.",
        arguments=("rights", "--policy", "POLICY"),
        policy=policy(rule(WARN, EVICT), more='[capacity]\nresource = "veriff.com/gpu-memory"\namount = "cards"\n'),
    ),
)
