package control

import (
	"fmt"
	"maps"

	"github.com/weirstream/weir/internal/control/log"
)

// staged is what participants want to have kept of an epoch, by their names.
type staged struct {
	all   map[string][]byte      // for the commits of this incarnation
	files map[string]log.Segment // output logs, of what is too large for a manifest
}

// inline is what the manifest itself keeps.
func (s staged) inline() map[string][]byte {
	in := maps.Clone(s.all)
	maps.DeleteFunc(in, func(party string, _ []byte) bool { return s.files[party] != log.Segment{} })
	return in
}

// stage makes durable what the n-th participant wants to have kept of an epoch:
// nil is nothing. An output log that no manifest comes to name is removed by the
// next incarnation.
func (c *committer) stage(s *staged, epoch int64, n int, p *party, b []byte) error {
	if b == nil {
		return nil
	}
	if s.all == nil {
		s.all, s.files = map[string][]byte{}, map[string]log.Segment{}
	}
	s.all[p.Name] = b
	if len(b) <= log.InlineOutput {
		return nil
	}
	file, err := log.WriteOutput(c.blobs, log.OutputName(c.incarnation, epoch, n, c.nonce), b)
	if err != nil {
		return fmt.Errorf("prepare epoch %d: keep the output of %s: %w", epoch, p.Name, err)
	}
	s.files[p.Name] = file
	c.outputs += file.Size
	return nil
}

// kept returns what a participant wanted to have kept with a checkpoint: from
// memory, or, for another incarnation's, from the store.
func (c *committer) kept(p *party, m *log.Manifest, s staged) ([]byte, error) {
	if b, ok := s.all[p.Name]; ok {
		return b, nil
	}
	file, ok := m.Outputs[p.Name]
	if !ok {
		return m.Staged[p.Name], nil
	}
	b, err := log.ReadOutput(c.blobs, c.where, file)
	return b, wrap(fmt.Sprintf("what %s has to commit of epoch %d", p.Name, m.Epoch), err)
}
