package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

const (
	// defaultProfileTime and maxProfileTime limit how long a CPU profile or a trace is recorded.
	defaultProfileTime = 30 * time.Second
	maxProfileTime     = 5 * time.Minute
	// profileSlack is the additional time to write it.
	profileSlack = 30 * time.Second
)

// profiles serves what go tool pprof and go tool trace read. It does not use net/http/pprof, whose
// import registers the profiles at http.DefaultServeMux, where the application may serve them
// without access control.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "profile\ntrace")
		for _, p := range pprof.Profiles() {
			fmt.Fprintln(w, p.Name())
		}
	})
	mux.HandleFunc("GET /debug/pprof/profile", recorded(func(ctx context.Context, w http.ResponseWriter) error {
		if err := pprof.StartCPUProfile(w); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		<-ctx.Done()
		return nil
	}))
	mux.HandleFunc("GET /debug/pprof/trace", recorded(func(ctx context.Context, w http.ResponseWriter) error {
		if err := trace.Start(w); err != nil {
			return err
		}
		defer trace.Stop()
		<-ctx.Done()
		return nil
	}))
	mux.HandleFunc("GET /debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		profile := pprof.Lookup(r.PathValue("name"))
		if profile == nil {
			http.NotFound(w, r)
			return
		}
		debug, _ := strconv.Atoi(r.FormValue("debug")) // go tool pprof reads the format 0
		if debug == 0 {
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		_ = profile.WriteTo(w, debug)
	})
	return mux
}

// recorded serves what record writes. The context of record ends after ?seconds=, or when the
// client is gone.
func recorded(record func(context.Context, http.ResponseWriter) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lasts := defaultProfileTime
		if text := r.FormValue("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			lasts = time.Duration(seconds * float64(time.Second))
			if err != nil || lasts <= 0 || lasts > maxProfileTime {
				http.Error(w, "seconds must be above 0 and at most "+strconv.Itoa(int(maxProfileTime.Seconds())), http.StatusBadRequest)
				return
			}
		}
		out := http.NewResponseController(w)
		_ = out.SetReadDeadline(time.Time{}) // the server's read deadline would end the answer
		_ = out.SetWriteDeadline(time.Now().Add(lasts + profileSlack))
		ctx, cancel := context.WithTimeout(r.Context(), lasts)
		defer cancel()
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := record(ctx, w); err != nil {
			http.Error(w, err.Error(), http.StatusConflict) // another recording is running
		}
	}
}
