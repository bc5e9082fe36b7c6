package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/privacy"
)

// Privacy says how private values are encrypted; see package privacy.
type Privacy struct {
	// Master keys, each base64 of 32 bytes, as from openssl rand -base64 32. The first encrypts the keys in the
	// database, and the others only decrypt them, until waybill privacy rotate has been run. It may be the
	// name of a variable or file, as in ${OUTBOX_MASTER_KEY} or file:/run/secrets/master.
	Keys []string `yaml:"keys" secret:"true"`
	// Instead of keys, the address of a key in a cloud: awskms://KEY?region=REGION, or
	// gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K, in a program that has them, such as waybill-all.
	Master string `yaml:"master"`
	// How long a process remembers keys of persons, and so for how long after an erasure it may still decrypt; 0
	// asks the database for each call. Default 1m.
	Cache *time.Duration `yaml:"cache"`
	// Private values of types that programs insert with SQL, by type: subject and fields, as JSON pointers. The
	// log has them as they were inserted, and what leaves it is encrypted.
	Rules map[string]privacy.Rule `yaml:"rules"`
}

// On reports whether the section has a master key.
func (p Privacy) On() bool { return len(p.Keys) > 0 || p.Master != "" }

// Config returns the section as package privacy takes it, with a master key of LocalKeys or of one of the openers,
// by the scheme of its address. Its errors begin with the key.
func (p Privacy) Config(openers map[string]privacy.OpenMaster) (c privacy.Config, err error) {
	c.Rules = p.Rules
	if p.Cache != nil {
		if c.Cache = *p.Cache; c.Cache == 0 {
			c.Cache = -1
		}
	}
	switch {
	case p.Cache != nil && (*p.Cache < 0 || *p.Cache > time.Hour):
		return c, fmt.Errorf("privacy.cache is %s: use 0 to 1h", *p.Cache)
	case len(p.Keys) > 0 && p.Master != "":
		return c, errors.New("privacy: keys and master exclude each other: to change from one to the other, see docs/privacy.md")
	case len(p.Keys) > 0:
		c.Master, err = privacy.LocalKeys(p.Keys...)
	case p.Master != "":
		c.Master, err = openMaster(p.Master, openers)
	}
	if err == nil {
		_, err = privacy.New(nil, c)
	}
	if err != nil {
		return c, fmt.Errorf("privacy.%s", strings.ReplaceAll(strings.ReplaceAll(err.Error(), privacy.ErrConfig.Error()+": ", ""), "\n", "\nprivacy."))
	}
	return c, nil
}

func openMaster(text string, openers map[string]privacy.OpenMaster) (privacy.Master, error) {
	address, err := privacy.ParseAddress(text)
	if err != nil || address.Scheme == "" {
		return nil, errors.New("master is no address: write awskms://KEY or gcpkms://projects/…")
	}
	open := openers[address.Scheme]
	if open == nil {
		known := strings.Join(slices.Sorted(maps.Keys(openers)), ", ")
		if known == "" {
			known = "none"
		}
		return nil, fmt.Errorf("master: this program has no keys of the scheme %q, but %s: use waybill-all, or add it to your own program with program.Masters", address.Scheme, known)
	}
	m, err := open(address)
	if err != nil {
		return nil, fmt.Errorf("master: %w", err)
	}
	return m, nil
}

// checkPrivacy reports the mistakes of the section, and keeps what it makes.
func (l *loader) checkPrivacy(c *Config) {
	if l.reported("privacy") {
		return
	}
	var err error
	if c.private, err = c.Privacy.Config(c.options.Masters); err != nil {
		for _, text := range strings.Split(err.Error(), "\n") {
			l.complain("", errors.New(text))
		}
		c.private = privacy.Config{}
	}
}

// PrivacyConfig returns the section privacy as package privacy takes it.
func (c *Config) PrivacyConfig() privacy.Config { return c.private }
