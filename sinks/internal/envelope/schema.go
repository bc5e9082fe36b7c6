package envelope

// Schema returns the JSON Schema of what Append appends, for payloads with a schema; nil for payloads that are
// not JSON.
func Schema(payload map[string]any) map[string]any {
	return Object(map[string]any{
		"id":          Text("Id of the notification, the same on every attempt."),
		"type":        Text("Name of its type."),
		"version":     map[string]any{"type": "integer", "description": "Version of the payload."},
		"key":         Text("Ordering key, if the notification has one."),
		"occurred_on": map[string]any{"type": "string", "format": "date-time", "description": "When it occurred."},
		"metadata":    map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
	}, "payload", payload, "id", "type", "version")
}

// Object returns the schema of an object that has these properties and, under a name, a payload.
func Object(properties map[string]any, name string, payload map[string]any, required ...string) map[string]any {
	if payload == nil {
		name, payload = name+"_base64", map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	properties[name] = payload
	return map[string]any{"type": "object", "properties": properties, "required": append(required, name)}
}

// Text returns the schema of a text.
func Text(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}
