package config

import "github.com/waybill-go/waybill/framework/contract"

// Contracts returns the contracts of the program's types and of those that the file has under types. With
// an error, the set has all but those that it names.
func (c *Config) Contracts() (*contract.Set, error) {
	return contract.FromTypes(c.options.Types)
}
