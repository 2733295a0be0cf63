package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/weirstream/weir"
)

// watch is the flags of run by which others look at the job.
type watch struct {
	metrics  string
	pprof    bool
	readyAge time.Duration
	live     string
}

func (w *watch) flags(fs *pflag.FlagSet) {
	fs.StringVar(&w.metrics, "metrics", "", "address of /metrics, /healthz, /readyz and /status, such as :9090; without a host it is this machine's only, 127.0.0.1 [WEIR_METRICS]")
	fs.BoolVar(&w.pprof, "pprof", false, "Go's profiles under /debug/pprof/ at the address of --metrics [WEIR_PPROF]")
	fs.DurationVar(&w.readyAge, "ready-checkpoint-age", 0, "age of the last checkpoint from which /readyz says no; 0: ten times --checkpoint-interval, at least 1m [WEIR_READY_CHECKPOINT_AGE]")
	fs.StringVar(&w.live, "live", "auto", "auto, on or off: a view of the job that is kept up to date, instead of progress lines; auto: on a terminal [WEIR_LIVE]")
}

// check refuses flags that don't fit together, and returns where to listen; or
// "" for nowhere.
func (w *watch) check() (addr string, err error) {
	switch {
	case w.live != "auto" && w.live != "on" && w.live != "off":
		return "", usageError{fmt.Errorf("--live %q: it must be auto, on or off", w.live)}
	case w.readyAge < 0:
		return "", usageError{fmt.Errorf("--ready-checkpoint-age %v: it can't be negative", w.readyAge)}
	case w.metrics == "" && w.pprof:
		return "", usageError{errors.New("--pprof needs an address: give --metrics, too")}
	case w.metrics == "":
		return "", nil
	}
	return listenAddress(w.metrics)
}

// listenAddress completes an address: a port alone is one of this machine, which
// others can't reach.
func listenAddress(s string) (string, error) {
	given := s
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil || port == "" {
		return "", usageError{fmt.Errorf("--metrics %q: it must be a port, such as :9090, or HOST:PORT", given)}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// maxAge is the age of the last checkpoint from which the job isn't ready; 0:
// none is too old, because none is taken by time.
func maxAge(flag, interval time.Duration, byRecords bool) time.Duration {
	switch {
	case flag > 0:
		return flag
	case byRecords, interval <= 0:
		return 0
	}
	return max(time.Minute, 10*interval)
}

// readiness says whether the job does what it is there for, and if not, why.
func readiness(m weir.Metrics, limit time.Duration) (ready bool, why []string) {
	switch m.Condition {
	case weir.Starting:
		why = append(why, "the job is starting"+waitingFor(m))
	case weir.Restarting:
		why = append(why, fmt.Sprintf("the job restarts in place (%s): %v%s", m.Restarts.Reason, m.Restarts.Err, waitingFor(m)))
	case weir.Ended:
		why = append(why, "the job has ended")
	case weir.Broken:
		why = append(why, fmt.Sprintf("the job has failed: %v", m.Err))
	case weir.Active:
		if age, ok := checkpointAge(m); ok && limit > 0 && age > limit {
			last := "there is no checkpoint since the start"
			if c := m.Checkpoints.Last; c != nil {
				last = fmt.Sprintf("the last checkpoint (%d)", c.ID.Slot)
			}
			why = append(why, fmt.Sprintf("%s, %s ago: more than %s (--ready-checkpoint-age)%s", last, short(age), short(limit), waitingFor(m)))
		}
	}
	return len(why) == 0, why
}

func waitingFor(m weir.Metrics) string {
	if m.Waiting == "" {
		return ""
	}
	return "; it waits: " + m.Waiting
}

// server answers for one running job.
type server struct {
	http   *http.Server
	served chan error
}

// listen takes the address, before the job is started.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w: choose another address, or stop what uses it; the job wasn't started", err)
	}
	return lis, nil
}

// serve answers at lis until close.
func serve(lis net.Listener, metrics func() weir.Metrics, limit time.Duration, profiles bool) *server {
	ready := func(m weir.Metrics) (bool, []string) { return readiness(m, limit) }
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(metrics, ready), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := &server{served: make(chan error, 1), http: &http.Server{
		Handler: handler(reg, metrics, ready, profiles),
		// Who sends slowly or keeps a connection must not keep the process busy.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}}
	go func() { s.served <- s.http.Serve(lis) }()
	return s
}

// close ends the server: answers that are under way get a moment.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // somebody didn't read: the answer is lost on them
	}
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

func handler(reg *prometheus.Registry, metrics func() weir.Metrics, ready func(weir.Metrics) (bool, []string), profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 8}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		m := metrics()
		answer(w, m.Condition != weir.Broken, []string{fmt.Sprintf("job %s is %s", m.Job, m.Condition)})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		m := metrics()
		ok, why := ready(m)
		if ok {
			why = []string{"ready"}
		}
		answer(w, ok, append(why, standing(m)...))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(status(metrics(), ready)) // to a client that has gone
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "job %s: /metrics /healthz /readyz /status\n", metrics().Job)
	})
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func answer(w http.ResponseWriter, ok bool, lines []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // to a client that has gone
}

// standing names the split that holds each source's watermark back, if it has
// stood still for a while. That alone doesn't make a job unready: there may be
// nothing to read.
func standing(m weir.Metrics) []string {
	var out []string
	for _, s := range m.Sources {
		if held, ok := heldBy(splitsOf(m, s.ID)); ok && stalled(held, m.At) >= noteworthy {
			out = append(out, fmt.Sprintf("source %s: the watermark stands at %s since %s (%s): split %s holds it back",
				s.ID, clockTime(held.Watermark), clockTime(held.Since), short(stalled(held, m.At)), held.Split))
		}
	}
	return out
}

// noteworthy is how long a watermark must have stood still to be mentioned.
const noteworthy = 10 * time.Second

// statusPage is the answer of /status.
type statusPage struct {
	Job         string         `json:"job"`
	Condition   weir.Condition `json:"condition"`
	Ready       bool           `json:"ready"`
	Why         []string       `json:"why,omitempty"` // it isn't ready
	Incarnation int64          `json:"incarnation"`
	Since       time.Time      `json:"since"`
	Waiting     string         `json:"waiting,omitempty"`
	Checkpoint  *checkpointRow `json:"checkpoint,omitempty"`
	Restarts    int64          `json:"restarts"`
	StateBytes  int64          `json:"stateBytes"`
	Sources     []sourceRow    `json:"sources"`
}

type checkpointRow struct {
	ID         string    `json:"id"`
	Epoch      int64     `json:"epoch"`
	At         time.Time `json:"at"`
	AgeSeconds float64   `json:"ageSeconds"`
}

// sourceRow says how far event time has come, and which split holds it back.
type sourceRow struct {
	Source         string     `json:"source"`
	Records        int64      `json:"records"`
	Watermark      *time.Time `json:"watermark,omitempty"`
	HeldBy         string     `json:"heldBy,omitempty"`
	Since          *time.Time `json:"since,omitempty"`
	StalledSeconds float64    `json:"stalledSeconds"`
}

func status(m weir.Metrics, ready func(weir.Metrics) (bool, []string)) statusPage {
	p := statusPage{Job: m.Job, Condition: m.Condition, Incarnation: m.Incarnation, Since: m.Since.UTC(), Waiting: m.Waiting, StateBytes: m.StateBytes,
		Sources: []sourceRow{}}
	p.Ready, p.Why = ready(m)
	for _, n := range m.Restarts.ByReason {
		p.Restarts += n
	}
	if c := m.Checkpoints.Last; c != nil {
		p.Checkpoint = &checkpointRow{ID: c.ID.String(), Epoch: c.Epoch, At: c.At.UTC(), AgeSeconds: m.At.Sub(c.At).Seconds()}
	}
	for _, s := range m.Sources {
		row := sourceRow{Source: s.ID, Records: s.Records}
		if held, ok := heldBy(splitsOf(m, s.ID)); ok {
			row.HeldBy, row.StalledSeconds = held.Split, stalled(held, m.At).Seconds()
			if !held.Watermark.IsZero() {
				row.Watermark = &held.Watermark
			}
			if !held.Since.IsZero() {
				since := held.Since.UTC()
				row.Since = &since
			}
		}
		p.Sources = append(p.Sources, row)
	}
	return p
}
