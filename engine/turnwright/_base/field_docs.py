"""The docstrings below a class's attributes: what a setting means, for those who print it.

pydantic can read them too (`use_attribute_docstrings`), but does so while the class is made: it looks for the source of
every caller on the stack and takes it apart, which is two thirds of what making `Agent` costs. Few programs print them.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, JsonValue


@cache
def attribute_docs(documented: type) -> dict[str, str]:
    """The text below each annotated attribute of this class itself, by the attribute's name.

    There is none where the source is not there to be read.
    """
    try:
        source = textwrap.dedent(inspect.getsource(documented))
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


def described(schema: dict[str, JsonValue], model: type[BaseModel]) -> None:
    """Put the docstrings of a model's fields into its JSON Schema: for pydantic's `json_schema_extra`."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    own = model.__mro__[: model.__mro__.index(BaseModel)]
    for name, field in model.model_fields.items():
        one = properties.get(field.alias or name)
        text = next((docs[name] for docs in map(attribute_docs, own) if name in docs), "")
        # What a field refers to may say the same of itself.
        if isinstance(one, dict) and text and inspect.getdoc(field.annotation) != text:
            one.setdefault("description", text)
