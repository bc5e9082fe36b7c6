// Package account finds the credentials for requests to Google Cloud.
package account

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/credentials/impersonate"
	"cloud.google.com/go/auth/httptransport"

	"github.com/waybill-go/waybill/sinks"
)

// forAccounts is the scope of requests for the tokens of another account.
const forAccounts = "https://www.googleapis.com/auth/cloud-platform"

// Account is who makes requests. The zero value means the Application Default Credentials.
type Account struct {
	File        string // the path of a key of a service account, or of a configuration of workload identity federation
	Impersonate string // the email address of a service account; "" means none
}

// Credentials reads the credentials for a scope. They renew their tokens, with the instance's dialer. The file is
// read once. It may take seconds to find out that there are none.
func (a Account) Credentials(in sinks.Instance, scope string) (*auth.Credentials, error) {
	options := &credentials.DetectOptions{
		Scopes: []string{scope}, UseSelfSignedJWT: true, Client: Client(in), Logger: slog.New(slog.DiscardHandler),
	}
	if a.Impersonate != "" {
		options.Scopes = []string{forAccounts}
	}
	base, err := a.read(options)
	if err != nil || a.Impersonate == "" {
		return base, err
	}
	client, err := httptransport.NewClient(&httptransport.Options{Credentials: base, BaseRoundTripper: options.Client.Transport, Logger: options.Logger})
	if err != nil {
		return nil, err
	}
	other, err := impersonate.NewCredentials(&impersonate.CredentialsOptions{
		TargetPrincipal: a.Impersonate, Scopes: []string{scope}, Credentials: base, Client: client, Logger: options.Logger,
	})
	if err != nil {
		return nil, err
	}
	return auth.NewCredentials(&auth.CredentialsOptions{
		TokenProvider:          other,
		ProjectIDProvider:      auth.CredentialsPropertyFunc(base.ProjectID),
		UniverseDomainProvider: auth.CredentialsPropertyFunc(base.UniverseDomain),
	}), nil
}

func (a Account) read(options *credentials.DetectOptions) (*auth.Credentials, error) {
	if a.File == "" {
		return credentials.DetectDefault(options)
	}
	content, err := os.ReadFile(a.File)
	if err != nil {
		return nil, err
	}
	var its struct {
		Type credentials.CredType `json:"type"`
	}
	if json.Unmarshal(content, &its) != nil || its.Type == "" {
		return nil, fmt.Errorf("%s is not a file of credentials: it has no JSON object with a type", a.File)
	}
	return credentials.NewCredentialsFromJSON(its.Type, content, options)
}

// Client returns the HTTP client for requests of a sink, without credentials.
func Client(in sinks.Instance) *http.Client {
	if in.HTTPClient != nil {
		return in.HTTPClient
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if in.Dial != nil {
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return in.Dial(ctx, network, address)
		}
	}
	return &http.Client{Transport: transport}
}
