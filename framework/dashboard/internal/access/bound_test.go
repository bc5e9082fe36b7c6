package access_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/dashboard/internal/access"
)

func TestRequestsBeyondTheBoundWaitForTheirTurnOrAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		served := access.NewBound().Of(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-end
			}
		}))
		ask := func(path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			served.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return w
		}
		for range 4 {
			go ask("/slow")
		}
		synctest.Wait()
		w := ask("/api/v1/status")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.NotEmpty(t, w.Header().Get("Retry-After"))

		waiting := make(chan int)
		go func() { waiting <- ask("/").Code }()
		time.Sleep(time.Second)
		close(end)
		require.Equal(t, http.StatusOK, <-waiting)
		require.Equal(t, http.StatusOK, ask("/").Code)
	})
}
