"""`python -m tools.dashboard` writes the dashboard."""

from tools.dashboard.written import FILE, text

if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
