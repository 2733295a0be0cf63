package cli

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// scrape returns the page as text and as parsed by Prometheus' own parser.
func scrape(t *testing.T, metrics func() weir.Metrics) (string, map[string]*dto.MetricFamily) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector(metrics, func(m weir.Metrics) (bool, []string) { return readiness(m, time.Minute) }))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	enc := expfmt.NewEncoder(&page, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(page.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return page.String(), parsed
}

// value is that of the series with the given labels, besides job_name.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
	f := families[name]
	for _, m := range f.GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			if l.GetName() != "job_name" {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
		}
		if slices.Equal(has, labels) {
			switch {
			case m.Counter != nil:
				return m.Counter.GetValue(), true
			case m.Gauge != nil:
				return m.Gauge.GetValue(), true
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount()), true
			}
		}
	}
	return 0, false
}

type tick struct {
	Key string
	At  int64
}

// counting is the end of a job with everything that is counted: late records, a
// restart in place, checkpoints. Its clock is a bubble's.
func counting(t *testing.T) (m weir.Metrics) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { m = countingJob(t) })
	return m
}

func countingJob(t *testing.T) weir.Metrics {
	t.Helper()
	committed := make(chan struct{})
	var ticks []tick
	for i := range int64(1000) {
		ticks = append(ticks, tick{fmt.Sprint("key ", i%10), noon.Unix() + i})
	}
	ticks = append(ticks, tick{"late", noon.Unix() - 86400})
	failed := false
	job := weir.NewJob("everything")
	job.From("ticks", weir.Slices(ticks), weir.EventTime(func(t tick) time.Time { return time.Unix(t.At, 0) }, 0).MaxAhead(0)).
		TryMap(func(t tick) (tick, error) {
			if t.At == noon.Unix()+700 && !failed {
				failed = true
				<-committed
				return t, passingError{errors.New("it was asked for")}
			}
			return t, nil
		}).
		KeyBy(func(t tick) string { return t.Key }).Window(window.Tumbling(time.Minute)).Count("minutes").
		To("out", weir.Each(func(weir.Result[string, int64]) error { return nil }))
	r := job.Start(t.Context(), weir.EveryRecords(500), weir.Parallelism(2), weir.StateMemory(1<<30),
		weir.OnCheckpoint(func(c weir.Checkpoint) {
			if c.Epoch == 1 {
				close(committed)
			}
		}))
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	return r.Metrics()
}

type passingError struct{ error }

func (passingError) Temporary() bool { return true }

func TestMetricsPage(t *testing.T) {
	m := counting(t)
	page, families := scrape(t, func() weir.Metrics { return m })
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("Prometheus' conventions: %v %v", problems, err)
	}
	read := float64(m.Sources[0].Records)
	if read < 1101 || read > 1801 { // up to 700 were read again
		t.Errorf("%v records were read, 1001 of them for the first time", read)
	}
	for _, c := range []struct {
		name   string
		want   float64
		labels []string
	}{
		{"weir_job_condition", 1, []string{"condition=ended"}},
		{"weir_job_condition", 0, []string{"condition=running"}},
		{"weir_job_ready", 0, nil},
		{"weir_job_incarnation", float64(m.Incarnation), nil},
		{"weir_source_records_total", read, []string{"step=ticks"}},
		{"weir_source_splits", 1, []string{"state=ended", "step=ticks"}},
		{"weir_split_records", 1001, []string{"split=0", "step=ticks"}},
		{"weir_step_late_records_total", 1, []string{"step=minutes"}},
		{"weir_step_state_keys", 0, []string{"step=minutes"}},
		{"weir_step_senders", 1, []string{"step=minutes"}},
		{"weir_sink_rows_total", float64(m.Sinks[0].Rows), []string{"sink=out"}},
		{"weir_sink_commit_seconds", float64(m.Checkpoints.Committed + 1), []string{"sink=out"}}, // and genesis
		{"weir_sink_failures_total", 0, []string{"sink=out"}},
		{"weir_checkpoints_total", float64(m.Checkpoints.Committed), nil},
		{"weir_checkpoint_seconds", float64(m.Checkpoints.Committed), nil},
		{"weir_checkpoint_phase_seconds", float64(m.Checkpoints.Committed), []string{"phase=prepare"}},
		{"weir_checkpoint_last_epoch", float64(m.Checkpoints.Last.Epoch), nil},
		{"weir_checkpoint_last_bytes", float64(m.Checkpoints.Last.Bytes), nil},
		{"weir_restarts_total", 1, []string{"reason=task"}},
		{"weir_restore_keys", float64(m.Restore.Keys), nil},
		{"weir_state_bytes", float64(m.StateBytes), nil},
		{"weir_state_budget_bytes", 1 << 30, nil},
	} {
		if got, ok := value(families, c.name, c.labels...); !ok || got != c.want {
			t.Errorf("%s%v: %v (%v), want %v", c.name, c.labels, got, ok, c.want)
		}
	}
	if m.Checkpoints.Committed < 2 || m.Sinks[0].Rows == 0 || m.Restore.Keys == 0 {
		t.Errorf("the run had too little to count: %+v", m)
	}
	for name, f := range families {
		for _, s := range f.GetMetric() {
			if !slices.ContainsFunc(s.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "job_name" && l.GetValue() == "everything" }) {
				t.Errorf("%s doesn't say of which job", name)
			}
		}
	}
}

// Every family is on the page of a job where all is known.
func TestEveryMetricIsThere(t *testing.T) {
	v := busy().now
	v.Restarts = troubled().now.Restarts
	v.Sources[0].Bytes = 5
	v.Splits[2].Status.Expires = v.At.Add(2 * time.Hour)
	_, families := scrape(t, func() weir.Metrics { return v })
	if got, _ := value(families, "weir_split_retention_left_seconds", "split=0", "step=refunds"); got != 7200 {
		t.Errorf("retention leaves %v s, want 7200", got)
	}
	for _, f := range metricFamilies() {
		if families[f.name] == nil {
			t.Errorf("%s is never there", f.name)
		}
		delete(families, f.name)
	}
	if len(families) > 0 {
		t.Errorf("not in the list: %v", slices.Sorted(maps.Keys(families)))
	}
	if got, ok := value(families, "weir_dead_letters_total", "reason=panic", "step=seen"); ok {
		t.Errorf("%v", got)
	}
}

// A source of very many splits doesn't make very many series; what holds it back
// is told in any case.
func TestSplitsAreBounded(t *testing.T) {
	m := weir.Metrics{At: noon, Job: "wide", Condition: weir.Active, Sources: []weir.SourceMetrics{{ID: "files"}}}
	for i := range 5000 {
		m.Splits = append(m.Splits, weir.SplitProgress{Source: "files", Split: fmt.Sprintf("%04d", i), Watermark: noon.Add(time.Duration(-i) * time.Second), Since: noon.Add(-time.Minute)})
	}
	page, families := scrape(t, func() weir.Metrics { return m })
	if n := len(families["weir_split_watermark_seconds"].GetMetric()); n != maxSplits {
		t.Errorf("%d series of splits", n)
	}
	if got, ok := value(families, "weir_source_watermark_seconds", "step=files"); !ok || got != float64(noon.Unix()-4999) {
		t.Errorf("the source's watermark: %v", got)
	}
	if got, ok := value(families, "weir_source_watermark_stalled_seconds", "step=files"); !ok || got != 60 {
		t.Errorf("it stands still: %v", got)
	}
	if got, _ := value(families, "weir_source_splits", "state=reading", "step=files"); got != 5000 {
		t.Errorf("%v splits", got)
	}
	if n := strings.Count(page, "\n"); n > 1200 {
		t.Errorf("a page of %d lines", n)
	}
}

// The operator's page and the code name the same metrics.
func TestDocumentedMetrics(t *testing.T) {
	b, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllStringSubmatch(string(b), -1) {
		documented[row[1]] = true
	}
	known := map[string]bool{}
	for _, f := range metricFamilies() {
		known[f.name] = true
		if !documented[f.name] {
			t.Errorf("docs/operations.md has no row for %s", f.name)
		}
	}
	for _, name := range regexp.MustCompile(`weir_[a-z_]+[a-z]`).FindAllString(string(b), -1) {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !known[name] && !known[base] {
			t.Errorf("docs/operations.md names %s, which there isn't", name)
		}
	}
}
