package account

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"cloud.google.com/go/auth/httptransport"
	"google.golang.org/api/option"

	"github.com/waybill-go/waybill/sinks"
)

// Access is who makes the requests to a JSON API of Google Cloud, and to where. The zero value means the service, with
// the Application Default Credentials.
type Access struct {
	Account  Account
	Endpoint string // that of an emulator, which needs no credentials; "" is the service
}

// Parameters sets the fields to the parameters of an address: credentials_file, endpoint and impersonate. It returns all
// mistakes, joined. Each begins with the parameter.
func (a *Access) Parameters(query string) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	var mistakes []error
	parameters := map[string]*string{
		"endpoint": &a.Endpoint, "credentials_file": &a.Account.File, "impersonate": &a.Account.Impersonate,
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := parameters[name]
		if !known || len(given[name]) > 1 {
			mistakes = append(mistakes, fmt.Errorf("%s: is unknown or there twice; the parameters are credentials_file, endpoint and impersonate", name))
			continue
		}
		*field = given.Get(name)
	}
	if a.Endpoint != "" {
		u, err := url.Parse(a.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			mistakes = append(mistakes, errors.New("endpoint: is not the address of an emulator; write one such as http://127.0.0.1:4443"))
		}
		if a.Account != (Account{}) {
			mistakes = append(mistakes, errors.New("credentials_file, impersonate: are not used for an emulator; leave them out, or endpoint"))
		}
	}
	if a.Account.Impersonate != "" && !strings.Contains(a.Account.Impersonate, "@") {
		mistakes = append(mistakes, fmt.Errorf("impersonate: %q is not the email address of a service account", a.Account.Impersonate))
	}
	return errors.Join(mistakes...)
}

// Options returns the options of the client of an API. Its requests have a token for the scope, or go below the path of
// the emulator. The credentials are read now; see [Account.Credentials].
func (a Access) Options(in sinks.Instance, scope, path string) ([]option.ClientOption, error) {
	client := Client(in)
	options := []option.ClientOption{option.WithUserAgent("waybill")}
	if a.Endpoint == "" {
		who, err := a.Account.Credentials(in, scope)
		if err != nil {
			return nil, err
		}
		client, err = httptransport.NewClient(&httptransport.Options{
			Credentials: who, BaseRoundTripper: client.Transport, DisableTelemetry: true,
		})
		if err != nil {
			return nil, err
		}
	} else {
		options = append(options, option.WithEndpoint(strings.TrimSuffix(a.Endpoint, "/")+path))
	}
	return append(options, option.WithHTTPClient(client)), nil
}
