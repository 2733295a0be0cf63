package kafka

import (
	"fmt"
	"slices"

	"github.com/weirstream/weir"
)

// loop is what one run of a job reads and writes on a cluster. A topic that is both
// would never end: each result is read again and makes another one. Jobs in the same
// process may share a Cluster, and one may read what another writes.
type loop struct {
	read    []Topics
	written []string
}

// reads is a source's word that a job reads topics. It refuses those that the job
// writes.
func (s *shared) reads(job string, topics Topics) error {
	if job == "" {
		return nil // nobody knows who asks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loop(job)
	for _, name := range l.written {
		if topics.include(name) {
			return looped(name, topics)
		}
	}
	if !slices.ContainsFunc(l.read, func(t Topics) bool { return t.String() == topics.String() }) { // Splits is called again and again
		l.read = append(l.read, topics)
	}
	return nil
}

// writes is a sink's word that a job writes topics. It refuses those that the job
// reads.
func (s *shared) writes(job string, topics []string) error {
	if job == "" {
		return nil // nobody knows who asks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loop(job)
	for _, name := range topics {
		for _, t := range l.read {
			if t.include(name) {
				return looped(name, t)
			}
		}
	}
	l.written = append(l.written, topics...)
	return nil
}

// over forgets what a job reads and writes, because its run has ended.
func (s *shared) over(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.loops, job)
}

// loop is called with the lock held.
func (s *shared) loop(job string) *loop {
	if s.loops == nil {
		s.loops = map[string]*loop{}
	}
	if s.loops[job] == nil {
		s.loops[job] = &loop{}
	}
	return s.loops[job]
}

// include reports whether a topic of that name is among the topics.
func (t Topics) include(name string) bool {
	if t.match != nil {
		return t.match.MatchString(name)
	}
	return slices.Contains(t.names, name)
}

func looped(name string, read Topics) error {
	return fmt.Errorf("%w: the job writes topic %s and reads %s, so it would read what it has written, without end: "+
		"give its results and dead letters topics that it doesn't read", weir.ErrRefused, name, read)
}
