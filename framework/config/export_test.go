package config

// Keep exports keep for tests.
func (c *Config) Keep(before *Config) { c.keep(before) }

// KindsOfAll exports kindsOfAll for tests.
const KindsOfAll = kindsOfAll
