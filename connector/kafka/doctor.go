package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// exam is one examination: of a source, or of all sinks of one participant. What
// it finds it collects, so that one thing that can't be looked at hides no other.
type exam struct {
	weir.Examination
	*ask
	view  *view
	clock func() time.Time
	last  lastRecords // of the control topic, once examineLedger has read it
	found []weir.Finding
}

// examine connects, looks at the cluster if nobody has before, and then calls rest,
// unless the cluster can't be reached at all.
func (c *Cluster) examine(ctx context.Context, x weir.Examination, rest func(context.Context, *exam)) ([]weir.Finding, error) {
	e := &exam{Examination: x, clock: sys.From(ctx).Clock.Now}
	a, err := newAsk(c)
	if err != nil {
		e.problem("cluster", "correct the settings of the connection", "%v", err)
		return e.found, nil
	}
	defer a.close()
	e.ask = a
	v, seen := x.Shared[c].(*view)
	if !seen {
		v = &view{features: map[string]int16{}, configs: map[string]map[string][]int32{}}
		e.view = v
		e.look(ctx, v)
		if x.Shared != nil {
			x.Shared[c] = v
		}
	}
	e.view = v
	if v.away {
		if seen {
			e.problem("cluster "+c.String(), "", "it can't be reached, as said above: nothing else was looked at")
		}
		return e.found, nil
	}
	rest(ctx, e)
	return e.found, nil
}

// prefixed is what the job's own names begin with.
func (e *exam) prefixed() string { return e.c.prefix + e.Job }

func (e *exam) add(level weir.Level, subject, fix, format string, args ...any) *weir.Finding {
	e.found = append(e.found, weir.Finding{Level: level, Subject: subject, Text: fmt.Sprintf(format, args...), Fix: fix})
	return &e.found[len(e.found)-1]
}

func (e *exam) ok(subject, format string, args ...any) {
	e.add(weir.LevelOK, subject, "", format, args...)
}

func (e *exam) warn(subject, fix, format string, args ...any) {
	e.add(weir.LevelWarning, subject, fix, format, args...)
}

func (e *exam) problem(subject, fix, format string, args ...any) {
	e.add(weir.LevelProblem, subject, fix, format, args...)
}

// unseen says that something couldn't be looked at.
func (e *exam) unseen(subject, what string, err error) {
	e.withheld(weir.LevelWarning, subject, what, "", err)
}

// withheld is unseen, at the level that it has where the job may not look. rights
// are then what is to be allowed, as kafka-acls.sh takes it.
func (e *exam) withheld(level weir.Level, subject, what, rights string, err error) {
	k, ok := errors.AsType[*kerr.Error](err)
	if !ok || !slices.Contains(unauthorized, k) {
		e.warn(subject, "", "%s", e.plain(what, err))
		return
	}
	fix := ""
	if rights != "" {
		fix = "allow it:\n" + e.allow(rights)
	}
	e.add(level, subject, fix, "the job may not %s (%s)", what, k.Message)
}

// unauthorized are the codes of brokers that know who asks, and refuse.
var unauthorized = []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed}

// plain is an error in words: nothing is refused because of it, it was only looked.
func (e *exam) plain(what string, err error) string {
	return strings.TrimPrefix(e.c.explain(what, err).Error(), weir.ErrRefused.Error()+": ")
}

// count of things, in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// some names the first few of many.
func some(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// partitionsOf lists partitions in words: "clicks/0, clicks/2, counts/1".
func partitionsOf(set map[string][]int32) string {
	var names []string
	for t, ps := range set {
		for _, p := range ps {
			names = append(names, fmt.Sprintf("%s/%d", t, p))
		}
	}
	slices.Sort(names)
	return some(names)
}

// days writes a length of time as people do.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	case d >= 10*day:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*day:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 10*time.Minute:
		return d.Round(time.Minute).String()
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return d.String()
}

// alter is the command that changes a topic's settings.
func (e *exam) alter(topic string, settings ...string) string {
	return fmt.Sprintf("  kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s", e.bootstrap(), topic, strings.Join(settings, ","))
}

// bootstrap is a broker to give to a tool of Kafka's.
func (e *exam) bootstrap() string { return e.view.bootstrap }
