package sqlite

// notNil keeps an empty payload from being bound as NULL.
func notNil(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}
