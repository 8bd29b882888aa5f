"""The pure middle: attribution, assessment and decision. No clock, no os, no client."""
