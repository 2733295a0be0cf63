package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir"
)

// view is what the live view shows: the job now, and a moment before.
type view struct {
	now, before weir.Metrics
}

// render draws the view with at most so many columns and lines. It is pure.
func (v view) render(width, height int, st style) []string {
	width = max(20, width)
	var out []string
	for _, part := range [][]string{v.head(width, st), v.checkpoints(width, st), v.sources(width, st), v.steps(width, st), v.sinks(width, st)} {
		if len(out) > 0 && len(part) > 0 {
			out = append(out, "")
		}
		out = append(out, part...)
	}
	height = max(2, height)
	if len(out) > height {
		out = slices.DeleteFunc(out, func(l string) bool { return l == "" })
	}
	if len(out) > height {
		cut := len(out) - height + 1
		out = append(out[:height-1], st.line(width, part{fmt.Sprintf("%s %d more lines: enlarge the window", st.ellipsis(), cut), dim}))
	}
	return out
}

func (v view) head(width int, st style) []string {
	m := v.now
	ink := good
	if m.Condition != weir.Active && m.Condition != weir.Ended {
		ink = bad
	}
	parts := []part{{clean(m.Job), bold}, {"  ", plain}, {string(m.Condition), ink}, {" " + ago(m.At.Sub(m.Since)), plain}}
	if m.Incarnation > 0 {
		parts = append(parts, part{fmt.Sprintf("  incarnation %d", m.Incarnation), dim})
	}
	state := "  state " + size(m.StateBytes)
	if m.StateBudget > 0 {
		state += fmt.Sprintf(" of %s (%d %%)", size(m.StateBudget), m.StateBytes*100/m.StateBudget)
	}
	out := []string{st.line(width, append(parts, part{state, plain})...)}
	if m.Waiting != "" {
		out = append(out, st.line(width, part{"waiting: " + clean(m.Waiting), warn}))
	}
	if r := m.Restarts; !r.Last.IsZero() {
		var n int64
		for _, by := range r.ByReason {
			n += by
		}
		out = append(out, st.line(width, part{fmt.Sprintf("restarts %d, the last %s ago (%s): %s", n, ago(m.At.Sub(r.Last)), r.Reason, clean(fmt.Sprint(r.Err))), bad}))
	}
	if m.Err != nil {
		out = append(out, st.line(width, part{clean(m.Err.Error()), bad}))
	}
	return out
}

func (v view) checkpoints(width int, st style) []string {
	c := v.now.Checkpoints
	var failed int64
	for _, n := range c.Failed {
		failed += n
	}
	tail := part{}
	if failed > 0 {
		tail = part{fmt.Sprintf("  failed %d", failed), bad}
	}
	if c.Last == nil && v.now.Restore.Restored {
		return []string{st.line(width, part{"no checkpoint yet since one was restored", dim}, tail)}
	}
	if c.Last == nil {
		return []string{st.line(width, part{"no checkpoint yet", dim}, tail)}
	}
	out := []string{st.line(width, part{fmt.Sprintf("checkpoint %d", c.Last.ID.Slot), bold},
		part{fmt.Sprintf("  %s ago  took %s", ago(v.now.At.Sub(c.Last.At)), short(c.Last.Took)), plain},
		part{fmt.Sprintf("  %s  epoch %d  pause %s", size(c.Last.Bytes), c.Last.Epoch, short(c.Pause.Last)), plain}, tail)}
	var longest time.Duration
	for _, phase := range weir.Phases() {
		longest = max(longest, c.Phases[phase].Last)
	}
	var phases []part
	used := 0
	for _, phase := range weir.Phases() {
		took := c.Phases[phase].Last
		next := []part{{"  " + phase + " ", dim}, {short(took), plain}, {st.level(took, longest), good}}
		n := cells(next[0].text + next[1].text + next[2].text)
		if used += n; used > width {
			out, phases, used = append(out, st.line(width, phases...)), nil, n
		}
		phases = append(phases, next...)
	}
	return append(out, st.line(width, phases...))
}

func (v view) sources(width int, st style) []string {
	t := table{cols: []column{{title: "source"}, {title: "rec/s", right: true}, {title: "records", right: true},
		{title: "watermark", drop: 1}, {title: "behind", right: true, drop: 4}, {title: "read", drop: 2}, {title: "lag", right: true, drop: 3}}}
	for i, s := range v.now.Sources {
		splits := splitsOf(v.now, s.ID)
		var was int64
		if i < len(v.before.Sources) {
			was = v.before.Sources[i].Records
		}
		var total int64
		for _, sp := range splits {
			total += sp.Records
		}
		if v.now.Restarts.Last.IsZero() {
			total = max(total, s.Records) // which is newer, but counts again what is read again
		}
		row := []part{{clean(s.ID), bold}, {v.rate(s.Records, was), plain}, {count(total), plain}, {resting(splits), dim}, {"", plain},
			{read(splits, st), plain}, {lag(splits), plain}}
		var note part
		if held, ok := heldBy(splits); ok {
			row[3], row[4] = part{"none", dim}, part{}
			if !held.Watermark.IsZero() {
				row[3] = part{held.Watermark.UTC().Format("2006-01-02 15:04:05"), plain}
				row[4] = part{ago(v.now.At.Sub(held.Watermark)), dim}
			}
			note = v.holding(held, splits)
		}
		t.add(note, row...)
	}
	return t.lines(width, st)
}

// holding says which split holds the watermark back, where there are several or
// it has stood still for a while.
func (v view) holding(held weir.SplitProgress, splits []weir.SplitProgress) part {
	still := stalled(held, v.now.At)
	switch {
	case still >= noteworthy:
		return part{fmt.Sprintf("held back by %s, which stands since %s (%s)", clean(held.Split), held.Since.UTC().Format("15:04:05"), ago(still)), warn}
	case len(splits) > 1:
		return part{"held back by " + clean(held.Split), dim}
	}
	return part{}
}

// read is how much of a source has been read, as a bar, where its size is known.
func read(splits []weir.SplitProgress, st style) string {
	var done, total int64
	for _, s := range splits {
		if s.Status.Total <= 0 {
			return ""
		}
		done, total = done+s.Status.Done, total+s.Status.Total
	}
	if total == 0 {
		return ""
	}
	share := float64(done) / float64(total)
	return fmt.Sprintf("%s %3.0f %%", st.bar(share), 100*share)
}

func lag(splits []weir.SplitProgress) string {
	var n int64
	for _, s := range splits {
		if s.Status.Lag < 0 {
			return ""
		}
		n += s.Status.Lag
	}
	if len(splits) == 0 {
		return ""
	}
	return count(n)
}

func (v view) steps(width int, st style) []string {
	dead := map[string]int64{}
	for _, d := range v.now.DeadLetters {
		dead[d.Step] += d.Records
	}
	t := table{cols: []column{{title: "step"}, {title: "rec/s", right: true}, {title: "keys", right: true}, {title: "state", right: true, drop: 3},
		{title: "late", right: true, drop: 4}, {title: "dead", right: true, drop: 5}, {title: "back-pressure", drop: 2}}}
	for _, s := range v.now.Steps { // what isn't as it should be stays
		if s.Late > 0 {
			t.cols[4].drop = 1
		}
		if dead[s.ID] > 0 {
			t.cols[5].drop = 1
		}
	}
	for i, s := range v.now.Steps {
		var was weir.StepMetrics
		if i < len(v.before.Steps) {
			was = v.before.Steps[i]
		}
		pressure := part{"in its source", dim}
		if s.Senders > 0 {
			share := v.pressure(s, was)
			pressure = part{fmt.Sprintf("%s %3.0f %%", st.bar(share), 100*share), plain}
			if share > 0.5 {
				pressure.ink = warn
			}
		}
		t.add(part{}, part{clean(s.ID), bold}, part{v.rate(s.Records, was.Records), plain}, part{count(s.Keys), plain},
			part{size(s.Bytes), plain}, counted(s.Late), counted(dead[s.ID]), pressure)
		delete(dead, s.ID)
	}
	out := t.lines(width, st)
	var rest []string
	for _, step := range slices.Sorted(maps.Keys(dead)) {
		rest = append(rest, fmt.Sprintf("%s at %s", count(dead[step]), clean(step)))
	}
	if len(rest) > 0 {
		out = append(out, st.line(width, part{"dead letters: " + strings.Join(rest, ", "), warn}))
	}
	return out
}

// counted is a number that is 0 as long as all is well.
func counted(n int64) part {
	if n == 0 {
		return part{"0", dim}
	}
	return part{count(n), warn}
}

// pressure is the share of their time that the senders of a step have waited.
func (v view) pressure(s, was weir.StepMetrics) float64 {
	d := v.now.At.Sub(v.before.At)
	if v.before.At.IsZero() || d <= 0 {
		return 0
	}
	return min(1, max(0, (s.Waited-was.Waited).Seconds()/(d.Seconds()*float64(s.Senders))))
}

func (v view) sinks(width int, st style) []string {
	t := table{cols: []column{{title: "sink"}, {title: "rows/s", right: true}, {title: "rows", right: true},
		{title: "committed", right: true, drop: 1}, {title: "took", right: true, drop: 2}, {title: "kind", drop: 3}}}
	for i, s := range v.now.Sinks {
		var was int64
		if i < len(v.before.Sinks) {
			was = v.before.Sinks[i].Rows
		}
		committed, took := part{"never", dim}, part{}
		if !s.LastCommit.IsZero() {
			committed, took = part{ago(v.now.At.Sub(s.LastCommit)) + " ago", plain}, part{short(s.Commit.Last), plain}
		}
		note := part{}
		if s.Failed > 0 {
			note = part{"failed calls: " + count(s.Failed), bad}
		}
		t.add(note, part{clean(s.ID), bold}, part{v.rate(s.Rows, was), plain}, part{count(s.Rows), plain}, committed, took, part{s.Kind, dim})
	}
	return t.lines(width, st)
}

// rate is how many a second, between the two moments.
func (v view) rate(n, was int64) string {
	from := v.before.At
	if from.IsZero() {
		from, was = v.now.Ready, 0
	}
	d := v.now.At.Sub(from)
	if from.IsZero() || d <= 0 {
		return "0"
	}
	return count(int64(max(0, float64(n-was)/d.Seconds())))
}

// ago is a length of time for people, in the two largest units.
func ago(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
