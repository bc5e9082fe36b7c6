package pages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
	"github.com/waybill-go/waybill/framework/dashboard/internal/target"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/registry"
)

const lovelace = "lovelace@example.org"

// mastered returns a configuration with a master key, which is n repeated.
func mastered(t *testing.T, n byte) privacy.Config {
	t.Helper()
	master, err := privacy.LocalKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(n), 32))))
	require.NoError(t, err)
	return privacy.Config{Master: master}
}

// publishOf publishes a notification whose payload has one encrypted value of a person, and returns it.
func (o outbox) publishOf(t *testing.T, c privacy.Config, subject, id string) *notification.Envelope {
	t.Helper()
	keys, err := privacy.New(o.store, privacy.Config{Master: c.Master, Cache: -1})
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	e := &notification.Envelope{ID: id, Type: "order.placed", Version: 1, Payload: []byte(`{"email": "secret"}`), Metadata: notification.Metadata{}}
	at, err := registry.ParsePointer("/email")
	require.NoError(t, err)
	require.NoError(t, keys.Seal(t.Context(), nil, []privacy.Sealing{{Envelope: e, Values: []registry.PrivateValues{{Subject: subject, At: []registry.Pointer{at}}}}}))
	metadata, err := json.Marshal(e.Metadata)
	require.NoError(t, err)
	o.exec(t, `INSERT INTO outbox (id, type, key, payload, metadata) VALUES ($1, $2, '', $3, $4)`, e.ID, e.Type, string(e.Payload), string(metadata))
	return e
}

func TestAPersonIsFoundAndErasedWithTwoForms(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		c := mastered(t, 'a')
		p := newPages(t, &target.Target{Store: o.store, Privacy: c})
		var log bytes.Buffer
		p.Logger = slog.New(slog.NewTextHandler(&log, nil))
		hers := o.publishOf(t, c, lovelace, "n1")
		o.publishOf(t, c, lovelace, "n2")
		o.publishOf(t, c, "babbage", "n3")

		status, page := p.ask(t, access.Operator, http.MethodGet, "/privacy?subject="+lovelace, nil)
		require.Equal(t, http.StatusOK, status)
		require.NotContains(t, page, lovelace, "an address names no person")
		require.Contains(t, page, "remember keys for up to 60 s")
		require.Contains(t, page, "docs/privacy.md")

		form := url.Values{"subject": {" " + lovelace + "\t"}}
		status, page = p.ask(t, access.Operator, http.MethodPost, "/privacy", form)
		require.Equal(t, http.StatusOK, status, page)
		require.Contains(t, page, `<dt>Keys</dt><dd>1</dd>`)
		require.Contains(t, page, `<th scope="row">log</th><td class="number" data-label="Rows">2</td>`)
		require.Contains(t, page, `name="expect" value="3"`)

		form.Set("expect", "2")
		status, page = p.ask(t, access.Operator, http.MethodPost, "/privacy/erase", form)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, page, "Nothing was changed: the outbox has more of this person now")
		require.Zero(t, o.count(t, "outbox_actions"))

		form.Set("expect", "3")
		r := httptest.NewRequestWithContext(access.With(t.Context(), access.User{Name: "ada", Role: access.Operator}), http.MethodPost, "/privacy/erase", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		require.Regexp(t, `^/actions/[0-9a-f-]+$`, w.Header().Get("Location"))
		require.Eventually(t, func() bool { return o.count(t, "outbox_actions WHERE ended_at IS NOT NULL") == 1 }, time.Minute, 10*time.Millisecond)
		_, page = p.ask(t, access.Operator, http.MethodGet, w.Header().Get("Location"), nil)
		require.Contains(t, page, "<dt>On</dt><dd>keys 1</dd>")
		require.Contains(t, page, `<span data-live="count">1</span></dd>`)
		for _, path := range []string{"/actions", w.Header().Get("Location")} {
			_, page = p.ask(t, access.Operator, http.MethodGet, path, nil)
			require.NotContains(t, page, lovelace)
		}

		keys, err := privacy.New(o.store, c)
		require.NoError(t, err)
		require.ErrorIs(t, keys.Views(t.Context(), []*notification.Envelope{hers}, "reveal", true)[0].Err, privacy.ErrErased)
		_, page = p.ask(t, access.Operator, http.MethodPost, "/privacy", form)
		require.Contains(t, page, "The keys of this person are erased")
		_, page = p.ask(t, access.Operator, http.MethodPost, "/privacy", url.Values{"subject": {"Babbage"}})
		require.Contains(t, page, "no private value is under this name")
		require.NotContains(t, page, "/privacy/erase")
		require.NotContains(t, log.String(), "lovelace")
	})
}

func TestThePageOfPrivacyIsNotKept(t *testing.T) {
	t.Parallel()
	p := newPages(t, &target.Target{Store: databases["sqlite"](t).store, Privacy: mastered(t, 'a')})
	r := httptest.NewRequestWithContext(access.With(t.Context(), access.User{Name: "ada", Role: access.Operator}), http.MethodPost, "/privacy", strings.NewReader("subject="+lovelace))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	for _, field := range regexp.MustCompile(`<input[^>]*name="subject"[^>]*>`).FindAllString(w.Body.String(), -1) {
		require.Contains(t, field, `autocomplete="off"`)
	}
	for _, address := range regexp.MustCompile(`(?:href|action)="([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
		require.NotContains(t, address[1], "lovelace")
	}
}

func TestViewersNeitherSeeNorErasePersons(t *testing.T) {
	t.Parallel()
	o, c := databases["sqlite"](t), mastered(t, 'a')
	o.publishOf(t, c, lovelace, "n1")
	p := newPages(t, &target.Target{Store: o.store, Privacy: c})
	form := url.Values{"subject": {lovelace}, "expect": {"2"}}
	for path, form := range map[string]url.Values{"/privacy": form, "/privacy/erase": form} {
		status, _ := p.ask(t, access.Viewer, http.MethodPost, path, form)
		require.Equal(t, http.StatusForbidden, status)
	}
	status, _ := p.ask(t, access.Viewer, http.MethodGet, "/privacy", nil)
	require.Equal(t, http.StatusForbidden, status)
	_, page := p.ask(t, access.Viewer, http.MethodGet, "/", nil)
	require.NotContains(t, page, `href="/privacy"`)
	_, page = p.ask(t, access.Operator, http.MethodGet, "/", nil)
	require.Contains(t, page, `href="/privacy" data-key="v"`)
	require.Zero(t, o.count(t, "outbox_actions"))
}

func TestThePageSaysWhatIsWrongWithTheMasterKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.publishOf(t, mastered(t, 'a'), lovelace, "n1")
		form := url.Values{"subject": {lovelace}, "expect": {"2"}}
		without := newPages(t, &target.Target{Store: o.store})
		other := newPages(t, &target.Target{Store: o.store, Privacy: mastered(t, 'b')})
		status, page := without.ask(t, access.Operator, http.MethodGet, "/privacy", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, "privacy.keys or privacy.master is not configured")
		require.NotContains(t, page, `name="subject"`)
		for _, path := range []string{"/privacy", "/privacy/erase"} {
			status, page = without.ask(t, access.Operator, http.MethodPost, path, form)
			require.Equal(t, http.StatusConflict, status)
			require.Contains(t, page, "privacy.keys or privacy.master is not configured")
			status, page = other.ask(t, access.Operator, http.MethodPost, path, form)
			require.Equal(t, http.StatusConflict, status)
			require.Contains(t, page, "add the key with this digest to keys")
		}
		require.Zero(t, o.count(t, "outbox_actions"))
	})
}

func TestMistakesOfTheFormsOfPrivacyAreExplained(t *testing.T) {
	t.Parallel()
	p := newPages(t, &target.Target{Store: databases["sqlite"](t).store, Privacy: mastered(t, 'a')})
	for _, c := range []struct {
		path string
		form url.Values
		text string
	}{
		{"/privacy", url.Values{}, "Name the person"},
		{"/privacy?subject=" + lovelace, url.Values{"subject": {" "}}, "Name the person"},
		{"/privacy/erase", url.Values{"subject": {"ada"}}, "start again"},
		{"/privacy/erase", url.Values{"subject": {"ada"}, "expect": {"x"}}, "start again"},
		{"/parked/plan", url.Values{"all": {"erase"}}, "no such act"},
	} {
		status, page := p.ask(t, access.Operator, http.MethodPost, c.path, c.form)
		require.Equal(t, http.StatusBadRequest, status, page)
		require.Contains(t, page, c.text)
	}
}

func TestAFailureToFindAPersonIsLoggedWithoutThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		p := newPages(t, &target.Target{Store: o.store, Privacy: mastered(t, 'a')})
		var log bytes.Buffer
		p.Logger = slog.New(slog.NewTextHandler(&log, nil))
		require.NoError(t, o.db.Close())
		status, page := p.ask(t, access.Operator, http.MethodPost, "/privacy", url.Values{"subject": {lovelace}})
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.NotContains(t, page, "lovelace")
		require.Contains(t, log.String(), "did not reach the database")
		require.NotContains(t, log.String(), "lovelace")
	})
}

func TestANameOfAPersonIsShownAsText(t *testing.T) {
	t.Parallel()
	p := newPages(t, &target.Target{Store: databases["sqlite"](t).store, Privacy: mastered(t, 'a')})
	for _, name := range hostile {
		status, page := p.ask(t, access.Operator, http.MethodPost, "/privacy", url.Values{"subject": {name}})
		require.Equal(t, http.StatusOK, status)
		for _, raw := range []string{"<script>alert", "<img", `href="javascript:`} {
			require.NotContains(t, page, raw)
		}
	}
}
