"""Reads what the encoder wrote, with Confluent's deserializers and with fastavro alone.

Usage: read.py REGISTRY FORMAT, with the encoded payload in base64 on the standard input. It prints the payload
as JSON, and for Protobuf the message's own JSON.
"""

import base64
import io
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2
import fastavro

OPTIONAL, REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
TYPES = {"double": 1, "int64": 3, "string": 9, "message": 11}


def order_class():
    """Returns the class of shop.Events.OrderPlaced, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3",
                                              dependency=[timestamp_pb2.DESCRIPTOR.name])
    file.message_type.add(name="Unused").field.add(name="x", number=1, type=9, label=OPTIONAL)
    events = file.message_type.add(name="Events")
    events.nested_type.add(name="Other").field.add(name="x", number=1, type=9, label=OPTIONAL)
    order = events.nested_type.add(name="OrderPlaced")
    for name, number, kind, label, message in [
        ("id", 1, "int64", OPTIONAL, ""), ("total", 2, "double", OPTIONAL, ""), ("note", 3, "string", OPTIONAL, ""),
        ("lines", 4, "message", REPEATED, ".shop.Line"),
        ("placed_at", 5, "message", OPTIONAL, ".google.protobuf.Timestamp"),
    ]:
        order.field.add(name=name, number=number, type=TYPES[kind], label=label, type_name=message or None)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=OPTIONAL)
    line.field.add(name="count", number=2, type=5, label=OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Events.OrderPlaced"))


def main():
    registry, form = sys.argv[1:]
    data = base64.b64decode(sys.stdin.read())
    client = SchemaRegistryClient({"url": registry})
    context = SerializationContext("orders", MessageField.VALUE)
    if form == "avro":
        value = AvroDeserializer(client)(data, context)
        schema = client.get_schema(int.from_bytes(data[1:5], "big"))
        alone = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(json.loads(schema.schema_str)), None)
        assert value == alone, (value, alone)
    elif form == "json-schema":
        value = JSONDeserializer(None, schema_registry_client=client)(data, context)
    else:
        message = ProtobufDeserializer(order_class(), {"use.deprecated.format": False}, client)(data, context)
        value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    print(json.dumps(value))


main()
