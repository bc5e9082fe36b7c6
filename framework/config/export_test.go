package config

// Keep is keep, which Reload uses.
func (c *Config) Keep(before *Config) { c.keep(before) }
