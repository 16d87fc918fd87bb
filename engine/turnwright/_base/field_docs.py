"""The docstrings below a class's attributes, read on demand.

pydantic can read them too (`use_attribute_docstrings`), but does so when the class is created, by parsing the source of
every caller on the stack. That is two thirds of the cost of creating `Agent`, and few programs print the docstrings.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, JsonValue


@cache
def attribute_docs(owner: type) -> dict[str, str]:
    """Return the docstring of each annotated attribute of this class, without base classes.

    Empty if the source is not available.
    """
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    return {
        above.target.id: inspect.cleandoc(below.value.value)
        for definition in ast.parse(source).body
        if isinstance(definition, ast.ClassDef)
        for above, below in pairwise(definition.body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def describe_fields(schema: dict[str, JsonValue], model: type[BaseModel]) -> None:
    """Add the docstrings of a model's fields to its JSON Schema. For pydantic's `json_schema_extra`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    own_models = model.__mro__[: model.__mro__.index(BaseModel)]
    for name, field in model.model_fields.items():
        entry = properties.get(field.alias or name)
        text = next((docs[name] for docs in map(attribute_docs, own_models) if name in docs), "")
        # The field's type may have the same docstring.
        if isinstance(entry, dict) and text and inspect.getdoc(field.annotation) != text:
            entry.setdefault("description", text)
