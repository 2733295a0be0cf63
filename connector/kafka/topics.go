package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Topics is a choice of topics: see [Named] and [Matching].
type Topics struct {
	names   []string
	pattern string // anchored; "": the names
	match   *regexp.Regexp
	create  *creation // nil: named topics must exist
	err     error
}

// Named chooses topics by their names. Each must exist, unless [CreateTopics] says
// how to make it.
func Named(names ...string) Topics {
	t := Topics{names: slices.Clone(names)}
	slices.Sort(t.names)
	if len(names) == 0 {
		t.err = errors.New("kafka.Named needs the name of a topic at least")
	}
	for i, n := range t.names {
		if err := checkTopic(n); err != nil {
			t.err = err
		} else if i > 0 && n == t.names[i-1] {
			t.err = fmt.Errorf("kafka.Named has topic %s twice", n)
		}
	}
	return t
}

// Matching chooses all topics whose whole name matches a regular expression, as
// package regexp has them; unless the source is bounded, also those that are made
// later. Kafka's internal topics and the job's own control topic are never among
// them.
func Matching(pattern string) Topics {
	t := Topics{pattern: pattern}
	if pattern == "" {
		t.err = errors.New("kafka.Matching needs a regular expression, and was given an empty one")
		return t
	}
	if t.match, t.err = regexp.Compile(`\A(?:` + pattern + `)\z`); t.err != nil {
		t.err = fmt.Errorf("kafka.Matching: %w", t.err)
	}
	return t
}

// String names the topics for messages.
func (t Topics) String() string {
	switch {
	case t.pattern != "":
		return fmt.Sprintf("topics matching %q", t.pattern)
	case len(t.names) == 1:
		return "topic " + t.names[0]
	}
	return "topics " + strings.Join(t.names, ", ")
}

// checkTopic wants what Kafka takes as the name of a topic.
func checkTopic(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("topic %q: that is no name for a topic", name)
	case len(name) > 249:
		return fmt.Errorf("topic %.40q...: its name has %d characters; 249 are possible", name, len(name))
	}
	if err := legal("topic", name); err != nil {
		return err
	}
	return nil
}

// splitName is what a partition is called as a split.
func splitName(topic string, partition int32) string {
	return topic + "/" + strconv.Itoa(int(partition))
}

// parseSplit is the inverse of splitName.
func parseSplit(split string) (topic string, partition int32, err error) {
	topic, num, _ := strings.Cut(split, "/")
	p, err := strconv.ParseInt(num, 10, 32)
	if err != nil || checkTopic(topic) != nil || p < 0 || splitName(topic, int32(p)) != split {
		return "", 0, fmt.Errorf("split %.300q is no partition: it must be TOPIC/NUMBER", split)
	}
	return topic, int32(p), nil
}
