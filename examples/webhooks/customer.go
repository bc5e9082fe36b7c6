package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// customer is the server of a customer, which gets webhooks. In real life it belongs to another company.
type customer struct {
	name, url string
	out       io.Writer

	mu      sync.Mutex
	secret  string
	status  int    // of its answers; 0: 204
	arrived []hook // the newest first
}

// hook is the body of a webhook.
type hook struct {
	Type string      `json:"type"`
	Data OrderPlaced `json:"data"`
}

func (c *customer) trust(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secret = secret
}

// ServeHTTP accepts a webhook if its signature is right.
func (c *customer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	receiver := webhook.Receiver{Secrets: []string{c.secret}}
	c.mu.Unlock()
	verified, err := receiver.Verify(http.HandlerFunc(c.accept))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	verified.ServeHTTP(w, r)
}

// accept gets only requests of the shop.
func (c *customer) accept(w http.ResponseWriter, r *http.Request) {
	var got hook
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	c.arrived = slices.Insert(c.arrived, 0, got)
	fmt.Fprintf(c.out, "%s got %s: %s of %s\n", c.name, got.Type, got.Data.Product, got.Data.Order)
	w.WriteHeader(http.StatusNoContent)
}

// show shows what the customer got.
func (c *customer) show(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	render(w, "customer", map[string]any{"Name": c.name, "Secret": c.secret, "Status": c.status, "Arrived": c.arrived})
}

// configure takes another secret, or another answer.
func (c *customer) configure(w http.ResponseWriter, r *http.Request) {
	if secret := r.PostFormValue("secret"); secret != "" {
		c.trust(secret)
	}
	if status, err := strconv.Atoi(r.PostFormValue("status")); err == nil {
		c.mu.Lock()
		c.status = status
		c.mu.Unlock()
	}
	http.Redirect(w, r, "/"+c.name, http.StatusSeeOther)
}

type customers []*customer

// of returns the server of a tenant.
func (all customers) of(tenant string) *customer {
	return all[slices.IndexFunc(all, func(c *customer) bool { return c.name == tenant })]
}

// handler serves all of them.
func (all customers) handler() http.Handler {
	mux := http.NewServeMux()
	for _, c := range all {
		mux.Handle("POST /"+c.name, c)
		mux.HandleFunc("GET /"+c.name, c.show)
		mux.HandleFunc("POST /"+c.name+"/configure", c.configure)
	}
	return mux
}
