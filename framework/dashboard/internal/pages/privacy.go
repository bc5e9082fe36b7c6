package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/privacy"
)

// privacyPage is the data of the page that finds and erases the private values of a person.
type privacyPage struct {
	// Missing is why this process cannot find them; "" if it can.
	Missing string
	// Subject is the person. Only forms that are posted have it: never an address, a log line or an action.
	Subject string
	// Plan is what would be erased; nil before a person is named.
	Plan *admin.ErasePlan
	// Mistake is why nothing was found or erased.
	Mistake string
	// Remembered is for how long forwarders remember keys; 0 if they do not.
	Remembered time.Duration
}

// Guide returns the address of the guide.
func (privacyPage) Guide() string { return docs + "docs/privacy.md" }

// askForPerson shows the form. It reads no query, so that no address leads to a person.
func askForPerson(_ context.Context, r *request) (any, error) {
	page, _, _ := r.privacyPage()
	return page, nil
}

func (r *request) privacyPage() (privacyPage, *privacy.Keyring, error) {
	page := privacyPage{Remembered: max(0, cmp.Or(r.Privacy.Cache, privacy.DefaultCache))}
	keys, err := r.Keyring()
	if err != nil {
		page.Missing = err.Error()
	}
	return page, keys, err
}

// findPerson shows what would be erased.
func findPerson(ctx context.Context, r *request) (any, error) {
	page, status, err := r.person(ctx)
	return answer{status: status, data: page}, err
}

// person plans to erase the person of the form. Spaces around the name, as pasting leaves them, do not count.
func (r *request) person(ctx context.Context) (page privacyPage, status int, err error) {
	page, keys, err := r.privacyPage()
	if err != nil {
		return page, http.StatusConflict, nil
	}
	if page.Subject = strings.TrimSpace(r.PostForm.Get("subject")); page.Subject == "" {
		page.Mistake = "Name the person as the application does."
		return page, http.StatusBadRequest, nil
	}
	bounded, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	plan, err := r.Admin.Erase(bounded, keys, page.Subject)
	switch {
	case err == nil:
		page.Plan = plan
		return page, http.StatusOK, nil
	case errors.Is(err, privacy.ErrMaster):
		page.Mistake = "Nothing was looked for: " + err.Error()
		return page, http.StatusConflict, nil
	case bounded.Err() != nil && ctx.Err() == nil:
		page.Mistake = fmt.Sprintf("Nothing was changed: counting takes longer than %s. Use waybill privacy erase, which has no time limit.", countTime)
		return page, http.StatusGatewayTimeout, nil
	}
	return page, 0, err
}

// erasePerson erases what the page has shown.
func erasePerson(ctx context.Context, r *request) (any, error) {
	page, status, err := r.person(ctx)
	if err != nil || page.Plan == nil {
		return answer{status: status, data: page}, err
	}
	expected, err := number(r.PostForm, "expect")
	switch {
	case err != nil || !r.PostForm.Has("expect"):
		return nil, problem{http.StatusBadRequest, "the form does not say what to expect: start again"}
	case page.Plan.Total() > expected:
		page.Mistake = "Nothing was changed: the outbox has more of this person now. Check the new numbers."
		return answer{status: http.StatusConflict, data: page}, nil
	}
	action, err := r.Acts.Start(ctx, page.Plan)
	if err != nil {
		return nil, err
	}
	return goTo{path: "/actions/" + url.PathEscape(action.ID)}, nil
}
