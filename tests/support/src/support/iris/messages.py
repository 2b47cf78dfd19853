"""Wire messages with a value in each field."""

from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

AnyMessage = TypeVar("AnyMessage", bound=Message)


def filled(message: AnyMessage) -> AnyMessage:
    """Fill each unset plain field of the message with a distinct value: n thousand for the n-th, or its name."""
    for field in message.DESCRIPTOR.fields:
        is_nested = field.cpp_type in (FieldDescriptor.CPPTYPE_MESSAGE, FieldDescriptor.CPPTYPE_ENUM)
        if field.is_repeated or is_nested or getattr(message, field.name):
            continue
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            setattr(message, field.name, f"the {field.name}")
        elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            setattr(message, field.name, True)
        else:
            setattr(message, field.name, 1000 * field.number)
    return message
