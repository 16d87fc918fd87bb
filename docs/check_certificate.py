"""Check a certificate of `turnwright explain --json` without Turnwright: the standard library is enough.

    turnwright explain --agents AGENTS.md --agent Coder --json > certificate.json
    python check_certificate.py certificate.json

It computes each bound again by the formulas of docs/rules.md. Without a file it reads standard input. Exit codes:
    0  every number, formula and origin in the certificate follows from its settings
    1  the certificate contradicts itself, the formulas, or the chart that it names; each fault is one line
    2  there is nothing to check: no such file, no JSON object, or a format or a chart that this program does not know
"""

import json
import sys
from pathlib import Path

FORMAT, MAX_DEPTH = "turnwright/certificate/2", 3
#: The known charts: the number of rows and the digest of each version.
CHARTS = {4: (75, "acb8feed6cce785e49f351afb737bcd0708d3bca52cdaaec8d3247e37d188a15")}
EXACTNESS = {
    "exact": "never exceeded",
    "overshot_by_one_reply": "may be exceeded by the attempts of one reply and the concluding call",
    "overshot_by_cancelling": "running work is canceled; may be exceeded by the time that takes",
    "provider": "enforced by the provider",
}
LEASES = (
    "after a reply and its own calls, each of the k sub-agent calls in the reply gets floor(rest / k) of the "
    "remaining tool calls and tokens, and rest / k of the remaining cost; the lower of this lease and the sub-agent's"
    " own bounds applies; unused parts return to the caller; a lease of 0 is refused; steps are the sub-agent's own, "
    "time is the caller's"
)
#: The least value of each setting that is a number. Those of OPTIONAL may be off, and those of REAL need not be whole.
ROUNDS = ("doom_threshold", "stall_errors", "stall_rounds")
ONES = ("max_calls_per_step", "tokens", "conclude_tokens", "max_tokens", "idle_steps")
ZEROS = "steps ceiling tool_calls cost seconds tool_timeout conclude_seconds nudges max_retries output_retries"
LEAST = (
    dict.fromkeys((*ZEROS.split(), "max_compactions", "max_pauses"), 0)
    | dict.fromkeys(ONES, 1)
    | dict.fromkeys(ROUNDS, 2)
)
OPTIONAL = {"steps", "tool_calls", "tokens", "cost", "seconds", "tool_timeout", "max_tokens", "idle_steps", *ROUNDS}
REAL = dict.fromkeys(("cost", "seconds", "tool_timeout", "conclude_seconds"), 1e15)
MOST = {"ceiling": 200, "max_calls_per_step": 32, **REAL}
TEXTS = {"concluding": ("after", "within", "never"), "doom_response": ("stop", "ask")}
TEXTS |= {"doom_compare": ("results", "calls"), "stall_response": ("hint", "loop")}
#: The keys of each object, with the types that no formula shows. A certificate without sub-agents has no sub_agents.
PARTS = {
    "certificate": "schema agent:str chart bounds:list reply code sub_agents",
    "chart": "version rows digest",
    "bound": "bound value formula field set_by exactness exactness_means reason settings",
    "setting": "field value set_by",
    "code": "tools hooks:list guardrails:list typed:bool",
    "hook": "name:str on:list",
    "guardrail": "name:str checks:input|output|tool_input|tool_output",
    "tool": "tool:str read_only delegates:bool timeout asks:always|perhaps|never returns_direct:bool retries:int "
    "retry_requests",
    "sub_agents": "leases max_depth calls:list agents:list tree",
    "sub_agent": "tool:str agent:str depth:int calls:list bounds:list reply code",
    "tree": "turns steps model_calls tool_calls",
}


class RefusedError(Exception):
    """A part has the wrong shape, so that what depends on it cannot be computed."""


def need(holds, fault):
    """Raise `RefusedError` unless a condition holds."""
    if not holds:
        raise RefusedError(fault)


def part(value, kind, where):
    """Return an object that has exactly the keys of its kind, with values of their types."""
    types = dict(one.partition(":")[::2] for one in PARTS[kind].split())
    need(isinstance(value, dict) and set(value) == set(types), f"{where}: its keys must be {', '.join(types)}")
    for key, of in types.items():
        right = value[key] in of.split("|") if "|" in of else of in ("", type(value[key]).__name__)
        need(right, f"{where}: {key} cannot be {value[key]!r}")
    return value


def same(one, other):
    """Return whether two values are equal. True is not 1."""
    return one == other and (type(one) is bool) == (type(other) is bool)


def lowest(*limits):
    """Return the lowest of the limits that are not off; None if all are."""
    return min((one for one in limits if one is not None), default=None)


def is_allowed(field, value):
    """Return whether a setting may have this value."""
    if field in TEXTS or value is None:
        return value in TEXTS[field] if field in TEXTS else field in OPTIONAL
    number = type(value) is int or (field in REAL and type(value) is float)
    return number and (value > 0 if field in REAL else value >= LEAST[field]) and value <= MOST.get(field, 2**31 - 2)


def settings_of(bounds, where):
    """Return the settings of an agent by field: value and origin. Each is the same at every bound."""
    known = {}
    for bound in bounds:
        for one in part(bound, "bound", f"{where}: a bound")["settings"]:
            field, value, origin = map(part(one, "setting", f"{where}: a setting").get, ("field", "value", "set_by"))
            need(field in LEAST or field in TEXTS, f"{where}: there is no setting {field!r}")
            need(is_allowed(field, value), f"{where}: {field} cannot be {value!r}")
            need(origin in ("agent", "configuration", "default"), f"{where}: {field} is set by {origin!r}")
            first = known.setdefault(field, (value, origin))
            need(same(first[0], value) and first[1] == origin, f"{where}: {field} is {first} and {(value, origin)}")
    return known


def turn_of(s):
    """Return the cap of a turn with these settings, the steps of it that may call tools, and its model calls."""
    cap = lowest(s["steps"], s["ceiling"])
    allowance = max(cap - 1, 0) if s["concluding"] == "within" else cap
    return cap, allowance, (allowance + 1) * (1 + s["max_retries"]) + 2 * s["max_compactions"]


def expected(s, tool_class):
    """Return every bound by the formulas: name, value, formula, fields, exactness, reason. The last one is `reply`."""
    cap, allowance, model_calls = turn_of(s)
    retries, compactions, rounds = s["max_retries"], s["max_compactions"], s["doom_threshold"]
    calls = "(allowance + 1) x (1 + max_retries)" + " + 2 x max_compactions" * bool(compactions)
    calls += f" = ({allowance} + 1) x (1 + {retries})" + f" + 2 x {compactions}" * bool(compactions)
    then = "then a person is asked" if s["doom_response"] == "ask" else "then the turn stops"
    repeats = f"{rounds} rounds of identical {s['doom_compare']}, or a cycle of 2 to 4 repeated as often; {then}"
    allowed = f"{'max(cap - 1, 0)' if s['concluding'] == 'within' else 'cap'} = {allowance}"
    of_reply = (s["max_tokens"], s["tokens"])
    both = f"min(max_tokens, tokens) = min({', '.join('off' if one is None else str(one) for one in of_reply)})"
    exact, reply, time, provider = EXACTNESS
    steps, doom = ("steps", "ceiling", "concluding"), ("doom_threshold", "doom_compare", "doom_response")
    shown = f"min(steps, ceiling) = min({'unset' if s['steps'] is None else s['steps']}, {s['ceiling']})"
    stalls = "doom_loop" if s["stall_response"] == "loop" else None

    def plain(name, field, exactness=exact, reason=None, formula=None):
        return name, s[field], formula or field, (field,), exactness, reason

    return [
        ("cap", cap, shown, steps[:2], exact, "step_cap"),
        ("steps that may call tools", allowance, allowed, steps, exact, None),
        ("model calls", model_calls, calls, (*steps, "max_retries", "max_compactions"), exact, None),
        plain("tool calls", "tool_calls", exact, "budget", tool_class and f"tool_calls.{tool_class}"),
        plain("tool calls per step", "max_calls_per_step"),
        plain("tokens", "tokens", reply, "tokens", "tokens, in and out"),
        plain("cost", "cost", reply, "cost"),
        plain("seconds", "seconds", time, "deadline", "seconds of driving, without pauses and the concluding call"),
        plain("seconds of a tool call", "tool_timeout", time, None, "tool_timeout, or the tool's own timeout"),
        ("rounds that repeat", rounds, repeats if rounds else doom[0], doom, exact, "doom_loop"),
        ("rounds of one error", s["stall_errors"], "stall_errors", ("stall_errors", "stall_response"), exact, stalls),
        ("rounds without news", s["stall_rounds"], "stall_rounds", ("stall_rounds", "stall_response"), exact, stalls),
        plain("steps in a row without a call", "idle_steps", exact, "no_call_ran"),
        plain("nudges", "nudges"),
        plain("pauses", "max_pauses"),
        plain("output retries", "output_retries"),
        plain("compactions", "max_compactions"),
        ("attempts a phase", 1 + retries, "1 + max_retries", ("max_retries",), exact, None),
        plain("seconds of an attempt to conclude", "conclude_seconds", time),
        plain("tokens of the conclusion", "conclude_tokens", provider),
        ("tokens of a reply", lowest(*of_reply), both, ("max_tokens", "tokens"), provider, None),
    ]


def check_bound(bound, wanted, known, where):
    """Yield the faults of one bound."""
    name, value, formula, fields, exactness, reason = wanted
    by_ceiling = fields[0] == "steps" and known["steps"][0] != lowest(known["steps"][0], known["ceiling"][0])
    one_for_all = name == "tool calls" and bound["formula"] == "tool_calls"  # the class of the tools does not matter
    formula = "tool_calls" if one_for_all else formula
    origin = "ceiling" if by_ceiling else known[fields[0]][1]
    right = (value, formula, fields[0], origin, exactness, EXACTNESS[exactness], reason)
    for key, wanted_value in zip(PARTS["bound"].split()[1:-1], right, strict=True):
        if not same(bound[key], wanted_value):
            yield f"{where}: {name}: {key} is {bound[key]!r}, and the settings give {wanted_value!r}"
    need([one["field"] for one in bound["settings"]] == list(fields), f"{where}: {name}: its settings must be {fields}")


def check_code(code, where):
    """Return the class of the tools and the sub-agents among them, or None where the tools are unknown."""
    if code is None:
        return None, None
    for kind in ("hook", "guardrail", "tool"):
        for one in part(code, "code", where)[f"{kind}s"] or ():
            part(one, kind, f"{where}: a {kind}")
    tools = [] if code["tools"] is None else code["tools"]
    need(type(tools) is list and len({one["tool"] for one in tools}) == len(tools), f"{where}: a tool comes twice")
    for tool in tools:
        right = tool["retries"] >= 0 and same(tool["retry_requests"], tool["retries"] + 1)
        right &= type(tool["read_only"]) in (bool, type(None))
        need(right, f"{where}: {tool['tool']}: retry_requests must be retries + 1, and read_only true, false or null")
    declared = [tool["read_only"] for tool in tools]
    kind = "writing" if False in declared else "default" if None in declared else "read_only"
    return (kind, {tool["tool"] for tool in tools if tool["delegates"]}) if code["tools"] is not None else (None, None)


def check_agent(agent, where):
    """Return the faults of an agent, its settings by field, and the sub-agents among its tools."""
    bounds = [*agent["bounds"], agent["reply"]]
    known = settings_of(bounds, where)
    values = {field: value for field, (value, _) in known.items()}
    tool_class, delegates = check_code(agent["code"], f"{where}: code")
    wanted = expected(values, tool_class)
    need([bound["bound"] for bound in bounds] == [one[0] for one in wanted], f"{where}: a bound is missing or unknown")
    faults = [fault for pair in zip(bounds, wanted, strict=True) for fault in check_bound(*pair, known, where)]
    return faults, values, delegates


def depths_of(names, below, most):
    """Return the smallest depth of each sub-agent that is called at most so deep."""
    depths, level = {}, names
    for depth in range(1, most + 1):
        depths |= dict.fromkeys(level, depth)
        level = [name for one in level for name in below[one][1] if name not in depths]
    return depths


def tree(values, names, below, depth=0):
    """Return turns, steps, model calls and tool calls of a turn with all turns below it."""
    cap, allowance, model_calls = turn_of(values)
    own = lowest(allowance * values["max_calls_per_step"], values["tool_calls"])
    under = [tree(*below[name], below, depth + 1) for name in names] if depth < MAX_DEPTH else []
    if not under:
        return 1, cap, model_calls, own
    turns, steps, calls, tool_calls = (max(column) for column in zip(*under, strict=True))
    tool_calls = lowest(own * (1 + tool_calls), values["tool_calls"])
    more = min(own * turns, tool_calls)
    each = [turn_of(below[name][0]) for name in depths_of(names, below, MAX_DEPTH - depth)]
    steps = min(own * steps, more * max(cap for cap, _, _ in each))
    calls = min(own * calls, more * max(model_calls for _, _, model_calls in each))
    return 1 + more, cap + steps, model_calls + calls, tool_calls


def check_team(team, root, own):
    """Yield the faults of the sub-agents: their bounds, their depth, and the bounds of the tree."""
    listed = part(team, "sub_agents", "sub_agents")["agents"]
    agents = {part(one, "sub_agent", "a sub-agent")["tool"]: one for one in listed}
    need(len(agents) == len(listed), "a sub-agent is listed twice")
    need(team["leases"] == LEASES and same(team["max_depth"], MAX_DEPTH), "sub_agents: leases or max_depth is another")
    below, delegating = {}, {}
    for name, one in agents.items():
        faults, values, delegating[name] = check_agent(one, f"sub-agent {name}")
        yield from faults
        below[name] = values, one["calls"]
    depths = depths_of(team["calls"], below, MAX_DEPTH)
    for name, one in agents.items():
        if not same(one["depth"], depths.get(name)):
            yield f"sub-agent {name}: its depth is {one['depth']}, and it is called at {depths.get(name)}"
        right = set() if one["depth"] == MAX_DEPTH else delegating[name]
        need(right is None or sorted(right) == sorted(one["calls"]), f"sub-agent {name}: its tools call {right}")
    need(own is None or sorted(own) == sorted(team["calls"]), f"sub_agents: the tools of the agent call {own}")
    for name, right in zip(PARTS["tree"].split(), tree(root, team["calls"], below), strict=True):
        if not same(part(team["tree"], "tree", "tree")[name], right):
            yield f"tree: {name} is {team['tree'][name]!r}, and the formulas give {right}"


def check(certificate):
    """Return every fault of a certificate. Raises `ValueError` for another format or an unknown chart."""
    if not isinstance(certificate, dict) or certificate.get("schema") != FORMAT:
        raise ValueError(f"it is not a certificate of the format {FORMAT}")
    try:
        part({**certificate, "sub_agents": None}, "certificate", "the certificate")
        chart = part(certificate["chart"], "chart", "chart")
        known = [version for version, rows in CHARTS.items() if chart["version"] == version or chart["digest"] in rows]
        if not known:
            raise ValueError(f"chart {chart['version']} is unknown here: take the program of your release")
        faults, values, delegates = check_agent(certificate, f"agent {certificate['agent']}")
        for key, right in zip(PARTS["chart"].split(), (known[0], *CHARTS[known[0]]), strict=True):
            faults += [] if same(chart[key], right) else [f"chart: {key} is {chart[key]}, not {right}"]
        if certificate.get("sub_agents") is not None:
            faults += check_team(certificate["sub_agents"], values, delegates)
        elif delegates:
            faults.append(f"sub_agents is missing: the agent may call {', '.join(sorted(delegates))}")
    except RefusedError as fault:
        return [str(fault)]
    except (TypeError, KeyError, AttributeError) as fault:
        return [f"a name is unknown, or a part has another shape: {type(fault).__name__}: {fault}"]
    return faults


def once(pairs):
    """Return an object of JSON. A key that occurs twice could show one value to a reader and another to a program."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("an object has a key twice")
    return dict(pairs)


def main(arguments):
    """Check the certificate in a file, or on standard input. Return the exit code."""
    try:
        text = Path(arguments[0]).read_text("utf-8") if arguments else sys.stdin.read()
        certificate = json.loads(text, object_pairs_hook=once)
        faults = check(certificate)
    except (OSError, ValueError, RecursionError) as error:
        print(f"cannot check: {error}", file=sys.stderr)
        return 2
    print("\n".join(faults) or f"agent {certificate['agent']!r}: every bound follows from the settings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
