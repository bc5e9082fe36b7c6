package main

import (
	"crypto/rand"
	_ "embed"
	"html/template"
	"net/http"
	"slices"

	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

//go:embed pages.html
var text string

var templates = template.Must(template.New("").Parse(text))

// cookie is the name of the cookie with a session.
const cookie = "session"

// pages returns the pages of the shop, and below /webhooks the portal.
func (s *shop) pages() (http.Handler, error) {
	theirs, err := portal.New(s.outbox.Endpoints(), portal.Config{
		Prefix: "/webhooks",
		Name:   "Webhooks of the shop",
		Authorize: func(r *http.Request) (tenant string, err error) { // the shop's own session names the tenant
			if tenant = s.loggedIn(r); tenant == "" {
				return "", portal.ErrUnauthenticated
			}
			return tenant, nil
		},
		Hide: func(typ string) bool { return typ == webhooks.DisabledType },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/webhooks/", theirs)
	mux.HandleFunc("GET /{$}", s.showOrders)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /orders", s.placeOrder)
	return http.NewCrossOriginProtection().Handler(mux), nil
}

// loggedIn returns whose session a request belongs to; "" if it has none.
func (s *shop) loggedIn(r *http.Request) string {
	sent, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[sent.Value]
}

// login believes anyone who says that it is a customer: replace it with the login of your application.
func (s *shop) login(w http.ResponseWriter, r *http.Request) {
	tenant := r.PostFormValue("tenant")
	if !slices.Contains(tenants, tenant) {
		http.Error(w, "unknown customer", http.StatusForbidden)
		return
	}
	session := rand.Text()
	s.mu.Lock()
	s.sessions[session] = tenant
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *shop) showOrders(w http.ResponseWriter, r *http.Request) {
	tenant := s.loggedIn(r)
	if tenant == "" {
		render(w, "login", map[string]any{"Tenants": tenants})
		return
	}
	orders, err := s.orders(r.Context(), tenant)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	render(w, "orders", map[string]any{"Tenant": tenant, "Orders": orders, "Server": s.customers.of(tenant).url, "Tenants": tenants})
}

func (s *shop) placeOrder(w http.ResponseWriter, r *http.Request) {
	tenant, product := s.loggedIn(r), r.PostFormValue("product")
	if tenant == "" || product == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	if err := s.order(r.Context(), tenant, product); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func render(w http.ResponseWriter, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := templates.ExecuteTemplate(w, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
