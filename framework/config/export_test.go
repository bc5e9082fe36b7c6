package config

// Keep exports keep for tests.
func (c *Config) Keep(before *Config) { c.keep(before) }
