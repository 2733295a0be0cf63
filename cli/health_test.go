package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirstream/weir"
)

func TestReadiness(t *testing.T) {
	running := weir.Metrics{At: noon, Condition: weir.Active, Ready: noon.Add(-time.Hour),
		Checkpoints: weir.CheckpointMetrics{Last: &weir.Checkpoint{ID: weir.CheckpointID{Slot: 7}, At: noon.Add(-30 * time.Second)}}}
	with := func(change func(*weir.Metrics)) weir.Metrics {
		m := running
		change(&m)
		return m
	}
	for _, c := range []struct {
		name  string
		m     weir.Metrics
		limit time.Duration
		says  string // "": ready
	}{
		{"a fresh checkpoint", running, time.Minute, ""},
		{"exactly at the limit", running, 30 * time.Second, ""},
		{"an old checkpoint", running, 29 * time.Second, "the last checkpoint (7), 30s ago: more than 29s"},
		{"no limit", running, 0, ""},
		{"no checkpoint yet, just started", with(func(m *weir.Metrics) { m.Checkpoints.Last, m.Ready = nil, noon.Add(-time.Second) }), time.Minute, ""},
		{"no checkpoint for long", with(func(m *weir.Metrics) { m.Checkpoints.Last = nil }), time.Minute, "no checkpoint since the start"},
		{"it waits", with(func(m *weir.Metrics) { m.Waiting, m.At = "database is locked", noon.Add(time.Hour) }), time.Minute, "database is locked"},
		{"starting", weir.Metrics{At: noon, Condition: weir.Starting}, time.Minute, "starting"},
		{"restarting", with(func(m *weir.Metrics) {
			m.Condition, m.Restarts = weir.Restarting, weir.RestartMetrics{Reason: "disk-full", Err: errors.New("no space")}
		}), time.Minute, "(disk-full): no space"},
		{"ended", with(func(m *weir.Metrics) { m.Condition = weir.Ended }), time.Minute, "ended"},
		{"failed", with(func(m *weir.Metrics) { m.Condition, m.Err = weir.Broken, errors.New("why") }), time.Minute, "failed: why"},
	} {
		ready, why := readiness(c.m, c.limit)
		if said := strings.Join(why, "\n"); ready != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v, %q", c.name, ready, said)
		}
	}
}

func TestAgeLimit(t *testing.T) {
	for _, c := range []struct {
		flag, interval time.Duration
		records        bool
		want           time.Duration
	}{
		{0, time.Second, false, time.Minute}, {0, time.Minute, false, 10 * time.Minute}, {5 * time.Second, time.Minute, false, 5 * time.Second},
		{0, 0, false, 0}, {0, time.Second, true, 0}, {time.Hour, 0, true, time.Hour},
	} {
		if got := maxAge(c.flag, c.interval, c.records); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestListenAddress(t *testing.T) {
	for in, want := range map[string]string{
		"9090": "127.0.0.1:9090", ":9090": "127.0.0.1:9090", ":0": "127.0.0.1:0", "0.0.0.0:9090": "0.0.0.0:9090", "[::]:9090": "[::]:9090",
		"10.0.0.7:9090": "10.0.0.7:9090", "localhost:http": "localhost:http", "": "", "9090x": "", "host": "", "a:b:c": "", ":99999": "", ":": "", "[::1]": "",
	} {
		got, err := listenAddress(in)
		var usage usageError
		if got != want || (err != nil) != (want == "") || err != nil && !errors.As(err, &usage) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// ask answers one request as the server would.
func ask(t *testing.T, m weir.Metrics, limit time.Duration, profiles bool, method, path string) (int, string) {
	t.Helper()
	h := handler(prometheus.NewRegistry(), func() weir.Metrics { return m }, func(m weir.Metrics) (bool, []string) { return readiness(m, limit) }, profiles)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Code, w.Body.String()
}

func TestEndpoints(t *testing.T) {
	well := busy().now
	broken := well
	broken.Condition, broken.Err = weir.Broken, errors.New("no space")
	restarting := troubled().now
	for _, c := range []struct {
		m            weir.Metrics
		method, path string
		profiles     bool
		code         int
		says         string
	}{
		{well, "GET", "/healthz", false, 200, "running"},
		{well, "HEAD", "/healthz", false, 200, ""},
		{well, "POST", "/healthz", false, 405, ""},
		{broken, "GET", "/healthz", false, 503, "failed"},
		{restarting, "GET", "/healthz", false, 200, "restarting"},
		{well, "GET", "/readyz", false, 200, "split b.jsonl holds it back"},
		{well, "GET", "/readyz", false, 200, "since 2026-03-01T11:59:20Z (40s)"},
		{restarting, "GET", "/readyz", false, 503, "no space left on device"},
		{well, "GET", "/debug/pprof/", false, 404, ""},
		{well, "GET", "/debug/pprof/", true, 200, "goroutine"},
		{well, "GET", "/debug/pprof/heap?debug=1", true, 200, "heap profile"},
		{well, "GET", "/", false, 200, "/readyz"},
		{well, "GET", "/else", false, 404, ""},
	} {
		code, body := ask(t, c.m, time.Minute, c.profiles, c.method, c.path)
		if code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s %s (%s): %d %q, want %d and %q", c.method, c.path, c.m.Condition, code, body, c.code, c.says)
		}
	}
}

func TestStatus(t *testing.T) {
	code, body := ask(t, busy().now, time.Second/10, false, "GET", "/status")
	var got statusPage
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if got.Job != "ad-clicks" || got.Condition != weir.Active || got.Ready || len(got.Why) != 1 || got.Checkpoint.Epoch != 8 || got.Checkpoint.AgeSeconds != 0.4 {
		t.Errorf("%s", body)
	}
	clicks := got.Sources[0]
	if clicks.Source != "clicks" || clicks.HeldBy != "b.jsonl" || clicks.StalledSeconds != 40 || !clicks.Watermark.Equal(noon.Add(-5*time.Minute)) || !clicks.Since.Equal(noon.Add(-40*time.Second)) {
		t.Errorf("%+v", clicks)
	}
}

// TestServer asks a job while it runs, and finds nobody there afterwards.
func TestServer(t *testing.T) {
	addr := make(chan string, 1)
	release, asked := make(chan struct{}), make(chan struct{})
	build := func(*Params) *weir.Job {
		job := weir.NewJob("served")
		job.From("numbers", weir.Generate(10, func(i int64) int64 { return i })).
			To("out", weir.Each(func(i int64) error {
				if i == 5 {
					close(asked)
					<-release
				}
				return nil
			}))
		return job
	}
	a := &app{build: build, stdout: io.Discard, stderr: &lines{found: addr}, getenv: func(string) (string, bool) { return "", false }}
	code := make(chan int, 1)
	go func() {
		code <- a.execute(t.Context(), []string{"run", "--metrics", ":0", "--pprof", "--batch-size", "1"})
	}()
	base := <-addr
	<-asked
	get := func(path string) (int, string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for path, says := range map[string]string{
		"/metrics": `weir_job_condition{condition="running",job_name="served"} 1`, "/healthz": "running", "/readyz": "ready", "/status": `"ready": true`,
		"/debug/pprof/cmdline": "cli", "/": "served",
	} {
		if status, body := get(path); status != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if _, body := get("/metrics"); !strings.Contains(body, "go_goroutines") || !strings.Contains(body, `weir_sink_rows_total{job_name="served",sink="out"}`) {
		t.Errorf("metrics:\n%s", body)
	}
	if !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Errorf("it listens at %s, and nobody asked for others to reach it", base)
	}
	close(release)
	if got := <-code; got != ExitOK {
		t.Errorf("code %d", got)
	}
	if status, _ := get("/healthz"); status != 0 {
		t.Errorf("it answers after the end: %d", status)
	}
}

// lines finds the address in what a run prints.
type lines struct {
	found chan string
	text  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.text.Write(p)
	if _, url, ok := strings.Cut(string(p), "metrics: "); ok {
		l.found <- strings.TrimSuffix(strings.TrimSpace(url), "/metrics")
	}
	return len(p), nil
}

func TestAddressInUse(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	var out []int64
	code, _, stderr := invoke(t, sums(&out), nil, "run", "--metrics", lis.Addr().String())
	if code != ExitFailed || len(out) != 0 || !strings.Contains(stderr, "the job wasn't started") {
		t.Fatalf("code %d, %d records: %s", code, len(out), stderr)
	}
}

func TestWatchFlags(t *testing.T) {
	for _, args := range [][]string{{"--pprof"}, {"--metrics", "nowhere"}, {"--live", "maybe"}, {"--ready-checkpoint-age=-1s"}, {"--state-memory", "plenty"}, {"--state-memory", "-1"}} {
		var out []int64
		code, _, stderr := invoke(t, sums(&out), nil, append([]string{"run"}, args...)...)
		if code != ExitUsage || len(out) != 0 || !strings.Contains(stderr, strings.TrimSuffix(args[0], "=-1s")) {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "4GiB": 4 << 30, "4gib": 4 << 30, "4Gi": 4 << 30, "500MB": 500_000_000, "1.5 TiB": 3 << 39, "10kb": 10_000, "7B": 7, "2MiB": 2 << 20} {
		var b byteSize
		if err := b.Set(in); err != nil || int64(b) != want {
			t.Errorf("%s: %d, %v", in, b, err)
		}
	}
	for _, in := range []string{"", "GiB", "4G", "4 Gigs", "-1", "1e3", "0x10", "9999999TiB", "1.2.3MB", "4GiBs", "NaN"} {
		var b byteSize
		if err := b.Set(in); err == nil {
			t.Errorf("%q is %d", in, b)
		}
	}
}

// TestStateMemoryExit: the code, and that sizes and advice are printed.
func TestStateMemoryExit(t *testing.T) {
	build := func(*Params) *weir.Job {
		job := weir.NewJob("growing")
		job.From("numbers", weir.Generate(500_000, func(i int64) int64 { return i })).
			KeyBy(func(i int64) int64 { return i }).Count("count").
			To("out", weir.Each(func(weir.Pair[int64, int64]) error { return nil }))
		return job
	}
	code, _, stderr := invoke(t, build, nil, "run", "--state-memory", "2MiB")
	if code != ExitMemory || !strings.Contains(stderr, "2.0 MiB") || !strings.Contains(stderr, "step count holds") || !strings.Contains(stderr, "what helps") {
		t.Fatalf("code %d: %s", code, stderr)
	}
}

func TestHoldingSplit(t *testing.T) {
	splits := busy().now.Splits
	if held, ok := heldBy(splits[:2]); !ok || held.Split != "b.jsonl" {
		t.Errorf("%+v, %v", held, ok)
	}
	none := slices.Clone(splits)
	none[0].Watermark = time.Time{} // nothing read of it yet
	if held, ok := heldBy(none[:2]); !ok || held.Split != "a.jsonl" {
		t.Errorf("%+v, %v", held, ok)
	}
	for i := range none {
		none[i].Idle = true
	}
	if held, ok := heldBy(none); ok {
		t.Errorf("all are idle: %+v", held)
	}
	if got := fmt.Sprint(stalled(weir.SplitProgress{}, noon)); got != "0s" {
		t.Errorf("nothing known: %s", got)
	}
}
