package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// patience is how long a page may take on a busy machine.
const patience = 2 * time.Minute

// chromium is the browser of all tests.
var chromium = struct {
	ctx context.Context
	end func()
}{}

func TestMain(m *testing.M) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endBrowser := chromedp.NewContext(allocator)
	chromium.ctx = ctx
	if err := chromedp.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need Chromium (on Debian: apt-get install chromium):", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := postgrestest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	endBrowser()
	endAllocator()
	os.Exit(code)
}

// tab is a tab of the browser. At the end of a test, errors in the console, exceptions and violations of
// the Content-Security-Policy fail it.
type tab struct {
	t     *testing.T
	ctx   context.Context
	base  string
	still bool // sees does not reload the page

	// expected is a part of errors that do not fail the test; "": none.
	expected string

	mu         sync.Mutex
	complaints []string
}

// newTab opens a tab on a site.
func newTab(t *testing.T, base string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(chromium.ctx)
	b := &tab{t: t, ctx: ctx, base: base}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complain("exception: " + e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				b.complain(fmt.Sprintf("console: %s %s", e.Type, e.Args[0].Value))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				b.complain(fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
			}
		}
	})
	require.NoError(t, chromedp.Run(ctx, log.Enable(), runtime.Enable()))
	t.Cleanup(func() {
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.complaints)
	})
	return b
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expected != "" && strings.Contains(text, b.expected) {
		return
	}
	b.complaints = append(b.complaints, text)
}

// do runs actions within patience.
func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var address, text string
		_ = chromedp.Run(b.ctx, chromedp.Location(&address), chromedp.Text("main", &text, chromedp.ByQuery, chromedp.AtLeast(0)))
		require.NoError(b.t, err, "at %s: %s", address, text)
	}
}

// awaits waits until a condition of the page holds. It asks at intervals and not with each frame, since
// a tab in the background has no frames.
func (b *tab) awaits(condition string) {
	b.t.Helper()
	b.do(chromedp.Poll(condition, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// open loads a page and returns the text of its main part.
func (b *tab) open(path string) (text string) {
	b.t.Helper()
	for began := time.Now(); b.expected != "503" && time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(b.base + path)
		require.NoError(b.t, err)
		require.NoError(b.t, r.Body.Close())
		if r.StatusCode != http.StatusServiceUnavailable { // the first sample of the outbox has ended
			break
		}
	}
	b.do(chromedp.Navigate(b.base+path), chromedp.Text("main", &text, chromedp.ByQuery))
	return text
}

// shoot saves pictures of the page in light and dark and on a phone, if WAYBILL_SCREENSHOTS is set.
func (b *tab) shoot(name string) {
	b.t.Helper()
	folder := os.Getenv("WAYBILL_SCREENSHOTS")
	if folder == "" {
		return
	}
	for _, shot := range []struct {
		suffix, scheme string
		width, height  int64
	}{{"light", "light", 1280, 800}, {"dark", "dark", 1280, 800}, {"phone", "light", 375, 800}, {"phone-dark", "dark", 375, 800}} {
		var picture []byte
		b.do(
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: shot.scheme}}),
			chromedp.EmulateViewport(shot.width, shot.height),
			chromedp.FullScreenshot(&picture, 100),
		)
		require.NoError(b.t, os.MkdirAll(folder, 0o755))
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+"-"+shot.suffix+".png"), picture, 0o644))
	}
	b.do(chromedp.EmulateViewport(1280, 800))
}
