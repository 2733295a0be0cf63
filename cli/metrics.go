package cli

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirstream/weir"
)

// maxSplits is how many splits of a source have series of their own: the first
// ones by name. Sources' own series count all.
const maxSplits = 100

// metric is one family of the metrics page; docs/operations.md has the same list.
type metric struct {
	name, help string
	kind       prometheus.ValueType // 0: a histogram
	labels     []string             // besides job_name: job is the label of Prometheus' own
}

const histogram prometheus.ValueType = 0

// metricFamilies lists every metric of a job.
func metricFamilies() []metric {
	return slices.Concat(inputFamilies(), stepFamilies(), epochFamilies())
}

// inputFamilies are those of the job, its sources and their splits.
func inputFamilies() []metric {
	const c, g = prometheus.CounterValue, prometheus.GaugeValue
	step, split := []string{"step"}, []string{"step", "split"}
	return []metric{
		{"weir_job_condition", "What the job is doing: 1 for the condition that it is in, 0 for the others.", g, []string{"condition"}},
		{"weir_job_ready", "Whether /readyz says that the job is ready.", g, nil},
		{"weir_job_incarnation", "Number of the start of the job that this process is; 0 until it has started.", g, nil},
		{"weir_job_start_time_seconds", "When the process started the job, in seconds since 1970.", g, nil},

		{"weir_source_records_total", "Records read by this process, those included that were read again after a restart in place.", c, step},
		{"weir_source_batches_total", "Reads that returned records or found none.", c, step},
		{"weir_source_bytes_total", "Bytes read, where the source counts bytes.", c, step},
		{"weir_source_held_seconds_total", "Time that all sources were held back because a sink's buffer was full, or for a stop.", c, nil},
		{"weir_source_splits", "Splits of the source by what they do: reading, idle or ended.", g, []string{"step", "state"}},
		{"weir_source_watermark_seconds", "Lowest watermark of the source's splits that are being read, in seconds since 1970. No value before the first record.", g, step},
		{"weir_source_watermark_stalled_seconds", "How long the watermark of the split that holds the source back has stood still.", g, step},

		{"weir_split_records", "Records read of the split since the job first started; goes back with a restart.", g, split},
		{"weir_split_lag_records", "Records of the split that are still to be read, where its reader knows.", g, split},
		{"weir_split_retention_left_seconds", "How long what follows the job's checkpoint in the split is kept, where its reader knows; below 0 it may be gone by now.", g, split},
		{"weir_split_watermark_seconds", "Watermark of the split, in seconds since 1970. No value before its first record.", g, split},
		{"weir_split_watermark_lag_seconds", "How far the split's watermark is behind the clock.", g, split},
		{"weir_split_watermark_stalled_seconds", "How long the split's watermark has stood still. No value for a split that is idle or has ended.", g, split},
	}
}

// stepFamilies are those of the steps with state and of the sinks.
func stepFamilies() []metric {
	const c, g = prometheus.CounterValue, prometheus.GaugeValue
	step, sink := []string{"step"}, []string{"sink"}
	return []metric{
		{"weir_step_records_total", "Records that the step with state has handled.", c, step},
		{"weir_step_batches_total", "Batches that the step with state has handled.", c, step},
		{"weir_step_late_records_total", "Records that were too late for the step.", c, step},
		{"weir_step_wait_seconds_total", "Time that the tasks that send to the step have waited for it, added up: back-pressure.", c, step},
		{"weir_step_senders", "Tasks that send to the step and can wait for it at the same time.", g, step},
		{"weir_step_credits", "Batches that the step's senders have.", g, step},
		{"weir_step_credits_used", "Of these, the batches that are being filled, on their way to the step or being handled.", g, step},
		{"weir_step_mailbox_messages", "Messages that wait for the step's tasks.", g, step},
		{"weir_step_mailbox_capacity", "Messages that can wait for the step's tasks.", g, step},
		{"weir_step_state_keys", "Entries of state that the step holds.", g, step},
		{"weir_step_state_bytes", "Memory that the step's state takes, copies for checkpoints included.", g, step},
		{"weir_step_state_copy_bytes", "Of these, the memory of copies for checkpoints.", g, step},

		{"weir_dead_letters_total", "Records that were set aside at the step, by reason.", c, []string{"step", "reason"}},

		{"weir_sink_rows_total", "Rows that the sink was given, those included that are given again after a restart.", c, sink},
		{"weir_sink_batches_total", "Batches of rows that the sink was given.", c, sink},
		{"weir_sink_write_seconds_total", "Time that the sink's writers took for them, added up over tasks.", c, sink},
		{"weir_sink_prepare_seconds", "How long the sink took to prepare an epoch. Sinks that share a transaction share it.", histogram, sink},
		{"weir_sink_commit_seconds", "How long the sink took to commit an epoch. Sinks that share a transaction share it.", histogram, sink},
		{"weir_sink_failures_total", "Epochs that the sink couldn't prepare or commit.", c, sink},
		{"weir_sink_last_commit_timestamp_seconds", "When the sink committed last, in seconds since 1970.", g, sink},
	}
}

// epochFamilies are those of checkpoints, restarts and memory.
func epochFamilies() []metric {
	const c, g = prometheus.CounterValue, prometheus.GaugeValue
	return []metric{
		{"weir_checkpoints_total", "Checkpoints committed.", c, nil},
		{"weir_checkpoint_failures_total", "Epochs that were given up, by the phase that they were in.", c, []string{"phase"}},
		{"weir_checkpoint_bytes_total", "Bytes written for checkpoints.", c, nil},
		{"weir_checkpoint_last_bytes", "Bytes written for the last checkpoint.", g, nil},
		{"weir_checkpoint_last_epoch", "Epoch of the last checkpoint.", g, nil},
		{"weir_checkpoint_last_timestamp_seconds", "When the last checkpoint was committed, in seconds since 1970.", g, nil},
		{"weir_checkpoint_age_seconds", "Time since the last checkpoint was committed or, before the first one, since the job had started.", g, nil},
		{"weir_checkpoint_seconds", "How long a checkpoint took, from its barrier to the last commit.", histogram, nil},
		{"weir_checkpoint_phase_seconds", "How long each phase of a checkpoint took.", histogram, []string{"phase"}},
		{"weir_checkpoint_pause_seconds", "The longest that a task stood still for a checkpoint.", histogram, nil},
		{"weir_checkpoints_retired_total", "Checkpoints deleted because enough newer ones are kept.", c, nil},

		{"weir_restore_seconds", "How long the last start took, up to its first record.", g, nil},
		{"weir_restore_keys", "Entries of state that it restored.", g, nil},
		{"weir_restarts_total", "Restarts in place, by reason.", c, []string{"reason"}},
		{"weir_restart_down_seconds_total", "Time from failures to the next record.", c, nil},

		{"weir_state_bytes", "Memory that state takes in all steps together.", g, nil},
		{"weir_state_budget_bytes", "What it may take at most (--state-memory). No value without a limit.", g, nil},
	}
}

// collector turns the metrics of a running job into Prometheus' own.
type collector struct {
	metrics func() weir.Metrics
	ready   func(weir.Metrics) (bool, []string)
	descs   map[string]*prometheus.Desc
	kinds   map[string]prometheus.ValueType
}

func newCollector(metrics func() weir.Metrics, ready func(weir.Metrics) (bool, []string)) *collector {
	c := &collector{metrics: metrics, ready: ready, descs: map[string]*prometheus.Desc{}, kinds: map[string]prometheus.ValueType{}}
	for _, m := range metricFamilies() {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, append([]string{"job_name"}, m.labels...), nil)
		c.kinds[m.name] = m.kind
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	p := &page{collector: c, m: c.metrics(), out: out}
	p.job()
	for _, s := range p.m.Sources {
		p.source(s)
	}
	for _, s := range p.m.Steps {
		p.step(s)
	}
	for _, d := range p.m.DeadLetters {
		p.add("weir_dead_letters_total", float64(d.Records), d.Step, d.Kind)
	}
	for _, s := range p.m.Sinks {
		p.sink(s)
	}
	p.checkpoints()
	p.restarts()
}

// page is one answer.
type page struct {
	*collector
	m   weir.Metrics
	out chan<- prometheus.Metric
}

func (p *page) add(name string, v float64, labels ...string) {
	p.out <- prometheus.MustNewConstMetric(p.descs[name], p.kinds[name], v, append([]string{p.m.Job}, labels...)...)
}

func (p *page) durations(name string, d weir.Durations, labels ...string) {
	buckets := map[float64]uint64{}
	for i, bound := range weir.DurationBounds() {
		buckets[bound.Seconds()] = 0
		if i < len(d.Within) {
			buckets[bound.Seconds()] = uint64(d.Within[i])
		}
	}
	p.out <- prometheus.MustNewConstHistogram(p.descs[name], uint64(d.Count), d.Sum.Seconds(), buckets, append([]string{p.m.Job}, labels...)...)
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (p *page) job() {
	m := p.m
	for _, c := range []weir.Condition{weir.Starting, weir.Active, weir.Restarting, weir.Ended, weir.Broken} {
		p.add("weir_job_condition", number(m.Condition == c), string(c))
	}
	ready, _ := p.ready(m)
	p.add("weir_job_ready", number(ready))
	p.add("weir_job_incarnation", float64(m.Incarnation))
	p.add("weir_job_start_time_seconds", seconds(m.Since))
	p.add("weir_source_held_seconds_total", m.Held.Seconds())
	p.add("weir_state_bytes", float64(m.StateBytes))
	if m.StateBudget > 0 {
		p.add("weir_state_budget_bytes", float64(m.StateBudget))
	}
}

func (p *page) source(s weir.SourceMetrics) {
	p.add("weir_source_records_total", float64(s.Records), s.ID)
	p.add("weir_source_batches_total", float64(s.Batches), s.ID)
	if s.Bytes > 0 {
		p.add("weir_source_bytes_total", float64(s.Bytes), s.ID)
	}
	states := map[string]int{}
	splits := splitsOf(p.m, s.ID)
	for i, sp := range splits {
		switch {
		case sp.Ended:
			states["ended"]++
		case sp.Idle:
			states["idle"]++
		default:
			states["reading"]++
		}
		if i < maxSplits {
			p.split(sp)
		}
	}
	for _, state := range []string{"reading", "idle", "ended"} {
		p.add("weir_source_splits", float64(states[state]), s.ID, state)
	}
	if held, ok := heldBy(splits); ok {
		if !held.Watermark.IsZero() {
			p.add("weir_source_watermark_seconds", seconds(held.Watermark), s.ID)
		}
		p.add("weir_source_watermark_stalled_seconds", stalled(held, p.m.At).Seconds(), s.ID)
	}
}

func (p *page) split(s weir.SplitProgress) {
	p.add("weir_split_records", float64(s.Records), s.Source, s.Split)
	if s.Status.Lag >= 0 {
		p.add("weir_split_lag_records", float64(s.Status.Lag), s.Source, s.Split)
	}
	if !s.Status.Expires.IsZero() {
		p.add("weir_split_retention_left_seconds", s.Status.Expires.Sub(p.m.At).Seconds(), s.Source, s.Split)
	}
	if !s.Watermark.IsZero() {
		p.add("weir_split_watermark_seconds", seconds(s.Watermark), s.Source, s.Split)
		p.add("weir_split_watermark_lag_seconds", p.m.At.Sub(s.Watermark).Seconds(), s.Source, s.Split)
	}
	if !s.Ended && !s.Idle {
		p.add("weir_split_watermark_stalled_seconds", stalled(s, p.m.At).Seconds(), s.Source, s.Split)
	}
}

func (p *page) step(s weir.StepMetrics) {
	for name, v := range map[string]float64{
		"weir_step_records_total": float64(s.Records), "weir_step_batches_total": float64(s.Batches),
		"weir_step_late_records_total": float64(s.Late), "weir_step_wait_seconds_total": s.Waited.Seconds(),
		"weir_step_senders": float64(s.Senders), "weir_step_credits": float64(s.Credits), "weir_step_credits_used": float64(s.Used),
		"weir_step_mailbox_messages": float64(s.Mailbox), "weir_step_mailbox_capacity": float64(s.Room),
		"weir_step_state_keys": float64(s.Keys), "weir_step_state_bytes": float64(s.Bytes), "weir_step_state_copy_bytes": float64(s.Copies),
	} {
		p.add(name, v, s.ID)
	}
}

func (p *page) sink(s weir.SinkMetrics) {
	p.add("weir_sink_rows_total", float64(s.Rows), s.ID)
	p.add("weir_sink_batches_total", float64(s.Batches), s.ID)
	p.add("weir_sink_write_seconds_total", s.Write.Seconds(), s.ID)
	p.durations("weir_sink_prepare_seconds", s.Prepare, s.ID)
	p.durations("weir_sink_commit_seconds", s.Commit, s.ID)
	p.add("weir_sink_failures_total", float64(s.Failed), s.ID)
	if !s.LastCommit.IsZero() {
		p.add("weir_sink_last_commit_timestamp_seconds", seconds(s.LastCommit), s.ID)
	}
}

func (p *page) checkpoints() {
	c := p.m.Checkpoints
	p.add("weir_checkpoints_total", float64(c.Committed))
	p.add("weir_checkpoint_bytes_total", float64(c.Bytes))
	p.add("weir_checkpoints_retired_total", float64(c.Retired))
	for _, phase := range weir.Phases() {
		p.add("weir_checkpoint_failures_total", float64(c.Failed[phase]), phase)
		p.durations("weir_checkpoint_phase_seconds", c.Phases[phase], phase)
	}
	p.durations("weir_checkpoint_seconds", c.Total)
	p.durations("weir_checkpoint_pause_seconds", c.Pause)
	if last := c.Last; last != nil {
		p.add("weir_checkpoint_last_bytes", float64(last.Bytes))
		p.add("weir_checkpoint_last_epoch", float64(last.Epoch))
		p.add("weir_checkpoint_last_timestamp_seconds", seconds(last.At))
	}
	if age, ok := checkpointAge(p.m); ok {
		p.add("weir_checkpoint_age_seconds", age.Seconds())
	}
}

func (p *page) restarts() {
	r := p.m.Restarts
	for reason, n := range r.ByReason {
		p.add("weir_restarts_total", float64(n), reason)
	}
	p.add("weir_restart_down_seconds_total", r.Down.Seconds())
	if p.m.Incarnation > 0 {
		p.add("weir_restore_seconds", p.m.Restore.Took.Seconds())
		p.add("weir_restore_keys", float64(p.m.Restore.Keys))
	}
}

// splitsOf returns a source's splits by name.
func splitsOf(m weir.Metrics, source string) []weir.SplitProgress {
	var out []weir.SplitProgress
	for _, s := range m.Splits {
		if s.Source == source {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b weir.SplitProgress) int {
		switch {
		case a.Split < b.Split:
			return -1
		case a.Split > b.Split:
			return 1
		}
		return 0
	})
	return out
}

// heldBy returns the split that holds a source's watermark back: of those that
// are read, the one with the lowest, and of several the one that stands longest.
func heldBy(splits []weir.SplitProgress) (held weir.SplitProgress, ok bool) {
	for _, s := range splits {
		if s.Ended || s.Idle {
			continue
		}
		if !ok || s.Watermark.Before(held.Watermark) || s.Watermark.Equal(held.Watermark) && s.Since.Before(held.Since) {
			held, ok = s, true
		}
	}
	return held, ok
}

// resting says why no split of a source holds time back; nothing of a source
// whose splits aren't known yet.
func resting(splits []weir.SplitProgress) string {
	if len(splits) == 0 {
		return ""
	}
	for _, s := range splits {
		if !s.Ended {
			return "idle"
		}
	}
	return "at the end"
}

// stalled is how long a split's watermark has stood still.
func stalled(s weir.SplitProgress, now time.Time) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Since))
}

// checkpointAge is the time since the last checkpoint, or since the first start
// of this process while there was none. A restart in place makes it no younger.
func checkpointAge(m weir.Metrics) (time.Duration, bool) {
	from := m.Ready
	if m.Checkpoints.Last != nil {
		from = m.Checkpoints.Last.At
	}
	return max(0, m.At.Sub(from)), !from.IsZero()
}
