package webhooks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

// Defaults and limits of a Config.
const (
	DefaultTenant           = "metadata.tenant"
	DefaultDisableAfter     = 5 * 24 * time.Hour
	DefaultOverlap          = 24 * time.Hour
	DefaultAttemptRetention = 72 * time.Hour
	// MaxEndpoints is the most endpoints that a tenant can have, and the default.
	MaxEndpoints = 10_000
)

// Attempts says which attempts are recorded.
type Attempts string

// The values of Config.Attempts.
const (
	AttemptsAll    Attempts = "all"
	AttemptsFailed Attempts = "failed"
	AttemptsNone   Attempts = "none"
)

// Config has the settings of a sink of kind webhooks, which are below "with", and of what manages its
// endpoints. The zero value of every field means its default.
type Config struct {
	httpsink.ClientConfig `yaml:",inline"`

	Tenant             string        `yaml:"tenant" doc:"The metadata that names the tenant of a notification: metadata.NAME. A notification without it goes to no endpoint. Default metadata.tenant"`
	EncryptionKeys     []string      `yaml:"encryption_keys" secret:"true" doc:"Keys that encrypt the secrets and the extra headers of endpoints in the database, each base64 of 32 random bytes. The first one encrypts; all of them decrypt, so that a new one can be put in front. All programs that manage endpoints need them. Default: none, and they are stored as they are"`
	EndpointsPerTenant int           `yaml:"endpoints_per_tenant" doc:"Most endpoints of a tenant, 1 to 10000. Default 10000"`
	DisableAfter       time.Duration `yaml:"disable_after" doc:"How long an endpoint may fail without a success until it is disabled. Default 120h"`
	SecretOverlap      time.Duration `yaml:"secret_overlap" secret:"false" doc:"How long the old secret of an endpoint signs as well after it was rotated. Default 24h"`
	Attempts           Attempts      `yaml:"attempts" enum:"all,failed,none" doc:"Which attempts are recorded for the customer, all, failed or none. Default all"`
	AttemptsBytes      *int          `yaml:"attempts_bytes" doc:"How much of the body of a request and of its answer a recorded attempt has: 0 to 8192 bytes. With 0 it has no headers of the answer either, only its status. Default 8192"`
	AttemptsRetention  time.Duration `yaml:"attempts_retention" doc:"How long recorded attempts are kept. Default 72h"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero.
func (c *Config) SetDefaults() {
	c.ClientConfig.SetDefaults()
	setDefault(&c.Tenant, DefaultTenant)
	setDefault(&c.EndpointsPerTenant, MaxEndpoints)
	setDefault(&c.DisableAfter, DefaultDisableAfter)
	setDefault(&c.SecretOverlap, DefaultOverlap)
	setDefault(&c.Attempts, AttemptsAll)
	if c.AttemptsBytes == nil {
		c.AttemptsBytes = new(maxBody)
	}
	setDefault(&c.AttemptsRetention, DefaultAttemptRetention)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns all mistakes, joined. Errors do not quote keys.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	mistakes := []error{filled.ClientConfig.Validate()}
	require := func(holds bool, format string, args ...any) {
		if !holds {
			mistakes = append(mistakes, fmt.Errorf(format, args...))
		}
	}
	require(filled.tenantName() != "", "tenant: %q names no metadata: write metadata.NAME, such as %s", filled.Tenant, DefaultTenant)
	require(!slices.Contains(ownMetadata, filled.tenantName()), "tenant: the sink itself uses metadata.%s: choose another", filled.tenantName())
	_, err := newVault(filled.EncryptionKeys)
	mistakes = append(mistakes, err)
	require(filled.EndpointsPerTenant >= 1 && filled.EndpointsPerTenant <= MaxEndpoints, "endpoints_per_tenant: %d is outside 1..%d", filled.EndpointsPerTenant, MaxEndpoints)
	require(filled.DisableAfter > 0, "disable_after: %s is not more than 0", filled.DisableAfter)
	require(filled.SecretOverlap > 0, "secret_overlap: %s is not more than 0", filled.SecretOverlap)
	require(*filled.AttemptsBytes >= 0 && *filled.AttemptsBytes <= maxBody, "attempts_bytes: %d is outside 0..%d", *filled.AttemptsBytes, maxBody)
	require(filled.AttemptsRetention > 0, "attempts_retention: %s is not more than 0; to record nothing use attempts: none", filled.AttemptsRetention)
	require(filled.Attempts == AttemptsAll || filled.Attempts == AttemptsFailed || filled.Attempts == AttemptsNone,
		"attempts: %q is not offered; use all, failed or none", filled.Attempts)
	return errors.Join(mistakes...)
}

// tenantName returns the name of the metadata with the tenant; "" if Tenant is wrong.
func (c *Config) tenantName() string {
	name, _ := strings.CutPrefix(c.Tenant, "metadata.")
	if len(name) == len(c.Tenant) {
		return ""
	}
	return name
}
