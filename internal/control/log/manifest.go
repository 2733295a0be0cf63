package log

import "slices"

// As returns the checkpoint as a job sees it that declares other names: renamed
// has the old id of a step or a source by its new one, dropped are ids whose
// state is given up. Later checkpoints extend what it returns. m isn't changed,
// and shares what stays the same. Its id stays that of m's entry.
func (m *Manifest) As(renamed map[string]string, dropped []string) *Manifest {
	names := make(map[string]string, len(renamed)) // by the old one
	for now, old := range renamed {
		names[old] = now
	}
	name := func(id string) string {
		if now, ok := names[id]; ok {
			return now
		}
		return id
	}
	as := *m
	as.Splits, as.Steps = nil, nil
	for _, s := range m.Splits {
		if !slices.Contains(dropped, s.Source) {
			s.Source = name(s.Source)
			as.Splits = append(as.Splits, s)
		}
	}
	used := map[string]bool{}
	for _, s := range m.Steps {
		if slices.Contains(dropped, s.ID) {
			continue
		}
		s.ID = name(s.ID)
		as.Steps = append(as.Steps, s)
		for _, p := range s.Parts {
			used[p.Segment] = true
		}
	}
	as.Segments = slices.DeleteFunc(slices.Clone(m.Segments), func(s Segment) bool { return !used[s.Name] })
	return &as
}
