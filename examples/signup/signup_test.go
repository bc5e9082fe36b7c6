package main

import (
	"context"
	"database/sql"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/examples/internal/readmetest"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// patience bounds each wait of a test.
const patience = 2 * time.Minute

const (
	ada     = `{"name": "Ada", "email": "ada@example.com"}`
	mallory = `{"name": "Mallory", "email": "ada@example.com"}`
	grace   = `{"name": "Grace", "email": "grace@example.com"}`
)

// service is the running service: web server, forwarder and database.
type service struct {
	t    *testing.T
	db   *sql.DB
	url  string
	stop func() // stops the forwarder, and returns once its deliveries are settled
}

// onEachStore runs a test on every database.
func onEachStore(t *testing.T, test func(t *testing.T, db *sql.DB, log outboxLog)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "signup.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{})
		require.NoError(t, err)
		log, err := sqlite.Open(t.Context(), db, sqlite.Config{})
		require.NoError(t, err)
		test(t, db, log)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db, err := postgres.OpenDB(postgrestest.DSN(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
		require.NoError(t, err)
		log, err := postgres.Open(t.Context(), db, postgres.Config{})
		require.NoError(t, err)
		test(t, db, log)
	})
}

// start runs the service until the test ends or calls stop.
func start(t *testing.T, db *sql.DB, log outboxLog, smtp string) *service {
	t.Helper()
	handler, engine, err := assemble(t.Context(), db, log, smtp)
	require.NoError(t, err)
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)

	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	var failed error
	go func() {
		defer close(stopped)
		failed = engine.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-stopped
		require.NoError(t, failed)
	}
	t.Cleanup(stop)
	return &service{t: t, db: db, url: web.URL + "/signup", stop: stop}
}

// startSMTP runs a mail server until the test ends.
func startSMTP(t *testing.T, c smtptest.Config) *smtptest.Server {
	t.Helper()
	server, err := smtptest.Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// post sends a signup, and returns the status code and the body of the response.
func (s *service) post(form string) (code int, answer string) {
	s.t.Helper()
	response, err := http.Post(s.url, "application/json", strings.NewReader(form))
	require.NoError(s.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(body)
}

// signUp sends a signup that must succeed.
func (s *service) signUp(form string) {
	s.t.Helper()
	code, answer := s.post(form)
	require.Equal(s.t, http.StatusAccepted, code, answer)
}

// status returns the status of the user with an address.
func (s *service) status(address string) string {
	s.t.Helper()
	var status string
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), `SELECT status FROM users WHERE email = $1`, address).Scan(&status))
	return status
}

// count returns the number of rows in a table. The name of the table can have a WHERE clause after it.
func (s *service) count(table string) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// waitFor polls until a table, which can have a WHERE clause after it, has a row.
func (s *service) waitFor(table string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); s.count(table) == 0; time.Sleep(5 * time.Millisecond) {
		require.True(s.t, time.Now().Before(deadline), "no row in %s within %s", table, patience)
	}
}

func (s *service) waitUntilSent(address string) {
	s.t.Helper()
	s.waitFor(`users WHERE status = 'Sent' AND email = '` + address + `'`)
}

// wait waits for a signal.
func wait(t *testing.T, signal <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
}

func TestASignupStoresTheUserAndSendsOneMailWithTextAndHTML(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		server := startSMTP(t, smtptest.Config{})
		s := start(t, db, log, server.URL())
		s.signUp(`{"name": "Jané <O'Neil>", "email": "jane@example.com"}`)
		s.waitUntilSent("jane@example.com")
		s.stop()

		mails := server.Messages()
		require.Len(t, mails, 1)
		require.Equal(t, []string{"jane@example.com"}, mails[0].To)
		require.Equal(t, "Welcome, Jané <O'Neil>!", mails[0].Subject())
		text, err := mails[0].Text()
		require.NoError(t, err)
		require.Contains(t, text, "Hello Jané <O'Neil>,")
		html, err := mails[0].HTML()
		require.NoError(t, err)
		require.Contains(t, html, "Hello <b>Jané &lt;O&#39;Neil&gt;</b>,")
		require.Contains(t, html, `<html lang="en">`)
		parts, err := mails[0].Parts()
		require.NoError(t, err)
		require.Len(t, parts, 3)
		require.Equal(t, "logo.png", parts[2].Name)
		require.Contains(t, html, `src="cid:`+parts[2].ContentID+`"`)
	})
}

func TestARefusedSignupSendsNoMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		server := startSMTP(t, smtptest.Config{})
		s := start(t, db, log, server.URL())
		s.signUp(ada)
		code, answer := s.post(mallory)
		require.Equal(t, http.StatusConflict, code)
		require.Contains(t, answer, "has already signed up")
		require.Equal(t, 1, s.count("users"))
		require.Equal(t, 1, s.count("outbox"), "the notification is rolled back with the user")

		// A later notification shows that the forwarder has read past the refused signup.
		s.signUp(grace)
		s.waitUntilSent("ada@example.com")
		s.waitUntilSent("grace@example.com")
		s.stop()
		var subjects []string
		for _, m := range server.Messages() {
			subjects = append(subjects, m.Subject())
		}
		require.ElementsMatch(t, []string{"Welcome, Ada!", "Welcome, Grace!"}, subjects)
	})
}

func TestAUserIsPendingUntilTheMailServerAcceptsTheMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		received, accept := make(chan struct{}), make(chan struct{})
		server := startSMTP(t, smtptest.Config{OnMessage: func(ctx context.Context, _ smtptest.Message) error {
			close(received)
			select {
			case <-accept:
			case <-ctx.Done():
			}
			return nil
		}})
		s := start(t, db, log, server.URL())
		s.signUp(ada)
		wait(t, received, "the mail server to receive the mail")
		require.Equal(t, "Pending", s.status("ada@example.com"), "the server has received the mail but not accepted it")
		close(accept)
		s.waitUntilSent("ada@example.com")
	})
}

func TestAMailServerThatIsDownDelaysTheMail(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		down := startDownServer(t)
		s := start(t, db, log, "smtp://"+down.address)
		s.signUp(ada)
		wait(t, down.calls, "the first attempt")
		wait(t, down.calls, "the second attempt, after the first has failed")
		require.Equal(t, "Pending", s.status("ada@example.com"))

		down.close()
		server := startSMTP(t, smtptest.Config{Address: down.address})
		s.waitUntilSent("ada@example.com")
		s.stop()
		require.Equal(t, 1, server.Count())
	})
}

func TestAUserWhoseMailIsDeferredIsQueuedUntilItIsSent(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		var accepting atomic.Bool // the server greylists while false
		server := startSMTP(t, smtptest.Config{OnRecipient: func(context.Context, string) error {
			if accepting.Load() {
				return nil
			}
			return smtptest.Reply(450, "4.7.1 greylisted, try again later")
		}})
		s := start(t, db, log, server.URL())
		s.signUp(ada)
		s.waitFor(`users WHERE status = 'Queued'`)
		accepting.Store(true)
		s.waitUntilSent("ada@example.com")
		s.stop()
		require.Equal(t, 1, server.Count())
	})
}

// downServer closes each connection at once, and sends on calls. After close it refuses connections.
type downServer struct {
	address string
	calls   chan struct{}
	close   func()
}

func startDownServer(t *testing.T) downServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	calls, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			select {
			case calls <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	stop := func() {
		cancel()
		_ = listener.Close()
		<-done
	}
	t.Cleanup(stop)
	return downServer{address: listener.Addr().String(), calls: calls, close: stop}
}

func TestAUserWhoseMailIsRefusedPermanentlyStaysPending(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		server := startSMTP(t, smtptest.Config{OnRecipient: func(_ context.Context, to string) error {
			if to == "ada@example.com" {
				return smtptest.Reply(550, "no such user")
			}
			return nil
		}})
		s := start(t, db, log, server.URL())
		s.signUp(ada)
		s.signUp(grace)
		s.waitUntilSent("grace@example.com")
		s.waitFor(`outbox_parked WHERE state = 'dead'`)
		s.stop()
		require.Equal(t, "Pending", s.status("ada@example.com"))
		require.Equal(t, 1, server.Count())
	})
}

func TestAnInvalidSignupIsRefusedAndStoresNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, log outboxLog) {
		s := start(t, db, log, startSMTP(t, smtptest.Config{}).URL())
		for _, form := range []string{
			``,
			`no JSON`,
			`{"name": "Ada"}`,
			`{"email": "ada@example.com"}`,
			`{"name": "Ada", "email": "ada"}`,
			`{"name": "Ada", "email": "ada@example.com, all@example.com"}`,
			`{"name": "` + strings.Repeat("a", 1<<16) + `", "email": "ada@example.com"}`,
		} {
			code, answer := s.post(form)
			require.Equal(t, http.StatusBadRequest, code, "%.40s: %s", form, answer)
		}
		require.Zero(t, s.count("users"))
		require.Zero(t, s.count("outbox"))
	})
}

// Not parallel: the goroutines of other tests would count as leaks.
func TestTheProgramPrintsWhatTheReadmeShowsAndLeaksNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer http.DefaultClient.CloseIdleConnections()
	database := filepath.Join(t.TempDir(), "kept.db")
	var out strings.Builder
	require.NoError(t, run(t.Context(), database, "", &out))
	want := readmetest.Output(t, "go run ./examples/signup")
	require.Equal(t, sortedLines(want), sortedLines(out.String()), "the mails are sent in parallel, so their order varies")

	// The second run finds the users of the first: all have signed up and have their mails.
	out.Reset()
	require.NoError(t, run(t.Context(), database, "", &out))
	require.Equal(t, 4, strings.Count(out.String(), "409 Conflict"))
	require.NotContains(t, out.String(), "mail to")
}

func TestTheReportNamesUsersWithoutMailAndMailsWithoutUser(t *testing.T) {
	onEachStore(t, func(t *testing.T, db *sql.DB, _ outboxLog) {
		_, err := db.ExecContext(t.Context(), usersTable)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `INSERT INTO users (id, name, email) VALUES ('1', 'Ada', 'ada@example.com')`)
		require.NoError(t, err)
		mails := []smtptest.Message{
			{Header: mail.Header{"To": {`"Ada" <ada@example.com>`}}},
			{Header: mail.Header{"To": {`"Mallory" <ada@example.com>`}}},
		}
		err = report(t.Context(), db, mails, io.Discard)
		require.EqualError(t, err, `"Ada" <ada@example.com> is still Pending`+"\n"+`"Mallory" <ada@example.com> got a mail but is not a user`)
	})
}

func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return lines
}
