package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/waybill-go/waybill/framework/dashboard"
)

// sessions has the application's logged-in users by cookie.
type sessions map[string]struct {
	name  string
	admin bool
}

// An application serves the dashboard below a path of its own server, for users who are logged in there.
func ExampleConfig_authorize() {
	people := sessions{"5e55": {"ada", true}}
	d, err := dashboard.New(dashboard.Config{
		Prefix: "/admin/outbox",
		Authorize: func(r *http.Request) (dashboard.User, error) {
			cookie, err := r.Cookie("session")
			if err != nil {
				return dashboard.User{}, errors.New("not logged in")
			}
			switch person, ok := people[cookie.Value]; {
			case !ok:
				return dashboard.User{}, errors.New("an unknown session")
			case person.admin:
				return dashboard.User{Name: person.name, Role: dashboard.Operator}, nil
			default:
				return dashboard.User{Name: person.name, Role: dashboard.Viewer}, nil
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	// With an outbox: defer d.Show(dashboard.Target{Store: store, Forwarder: forwarder})()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the shop") })
	mux.Handle("/admin/outbox/", d)

	server := httptest.NewServer(mux)
	defer server.Close()
	for _, session := range []string{"", "5e55"} {
		r, _ := http.NewRequest(http.MethodGet, server.URL+"/admin/outbox/", nil)
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
		response, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// 403 Forbidden
	// 503 Service Unavailable
}
