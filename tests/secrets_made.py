"""Secrets that nobody has, one of each known form.

They are put together here, so that no scanner of repositories finds one in a file.
"""

_LETTERS = "aB3dE6gH9jK2mN5pQ8rT1vW4yZ7"

SECRETS = (
    "sk-" + _LETTERS,
    "sk-" + "ant-api03-" + _LETTERS,
    "sk_" + "live_" + _LETTERS,
    "ghp_" + _LETTERS,
    "github" + "_pat_" + _LETTERS,
    "glpat-" + _LETTERS,
    "xoxb-" + "123456789012-" + _LETTERS,
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "AIza" + (_LETTERS + _LETTERS)[:35],
    "ya29." + _LETTERS,
    "hf_" + _LETTERS,
    "gsk_" + _LETTERS,
    "npm_" + _LETTERS + "abcd",
    "xai-" + _LETTERS,
    "dop_" + "v1_" + "0123456789abcdef" * 4,
    "whsec_" + _LETTERS,
    "SG." + _LETTERS + "." + _LETTERS,
    "hooks.slack.com/" + "services/T00000000/B00000000/" + _LETTERS,
    "AccountKey=" + _LETTERS + "==",
    "pypi-" + _LETTERS * 2,
    "eyJ" + _LETTERS + ".eyJ" + _LETTERS + "." + _LETTERS,
)
