package portal_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
	"github.com/waybill-go/waybill/sinks"
)

// An application serves the portal below a path of its own server, for customers who are logged in there.
func Example() {
	folder, err := os.MkdirTemp("", "portal-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	endpoints, err := open(context.Background(), filepath.Join(folder, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	customers := map[string]string{"5e55": "acme"} // of the application's sessions
	handler, err := portal.New(endpoints, portal.Config{
		Prefix: "/account/webhooks",
		Name:   "Shop webhooks",
		Authorize: func(r *http.Request) (string, error) {
			session, err := r.Cookie("session")
			if err != nil || customers[session.Value] == "" {
				return "", portal.ErrUnauthenticated
			}
			return customers[session.Value], nil
		},
		Describe: func(typ string) (text string, schema, example []byte) {
			if typ == "order.placed" {
				return "A customer has paid.", nil, []byte(`{"order": "o-1", "total": 12.5}`)
			}
			return "", nil, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/account/webhooks/", handler)

	server := httptest.NewServer(mux)
	defer server.Close()
	for _, session := range []string{"", "5e55"} {
		r, _ := http.NewRequest(http.MethodGet, server.URL+"/account/webhooks/", http.NoBody)
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
		response, err := server.Client().Do(r)
		if err != nil {
			log.Fatal(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// 401 Unauthorized
	// 200 OK
}

// open returns the endpoints of a new outbox.
func open(ctx context.Context, path string) (*webhooks.Endpoints, error) {
	db, err := sqlite.OpenDB(path)
	if err != nil {
		return nil, err
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	return webhooks.NewEndpoints(store, sinks.Instance{Name: "customers"}, webhooks.Config{})
}
