package data

import (
	"fmt"
	"strings"
	"testing"
)

// The scripts: "r256" is a Read of 256 records, "x" one of the last ones that is
// rejected, "x5" five. The brake must trip at the last x and at none before it,
// or at none at all.
func TestBrake(t *testing.T) {
	repeat := func(n int, s string) string { return strings.TrimSpace(strings.Repeat(s+" ", n)) }
	for _, c := range []struct {
		name   string
		limit  Limit
		script string
		trips  bool
	}{
		{"nothing rejected", Limit{1000, 10_000}, repeat(100, "r256"), false},
		{"the default allows a thousand in a row", Limit{1000, 10_000}, repeat(4, "r250 x250"), false},
		{"and not one more", Limit{1000, 10_000}, repeat(4, "r250 x250") + " r1 x", true},
		{"a tiny input of bad records only", Limit{1000, 10_000}, "r20 x20", false},
		{"a tiny input, asked for", Limit{10, 100}, "r11 x11", true},
		{"a tiny input, exactly what is allowed", Limit{10, 100}, "r10 x10", false},
		{"none allowed", Limit{0, 100}, "r100 r100 x", true},
		{"none allowed since the start", Limit{0, 0}, "r100 r100 x", true},
		{"a tenth, evenly, for ever", Limit{1000, 10_000}, repeat(1000, "r250 x25"), false},
		{"a little more than a tenth, evenly", Limit{1000, 10_000}, repeat(38, "r250 x26") + " r250 x13", true},
		{"long ago doesn't count", Limit{10, 100}, "r10 x10 " + repeat(3, "r100") + " r10 x10", false},
		{"a storm after much that was good", Limit{1000, 10_000}, repeat(1000, "r256") + " " + repeat(4, "r250 x250") + " r1 x1", false},
		{"a longer storm", Limit{1000, 10_000}, repeat(1000, "r256") + " " + repeat(4, "r256 x256") + " r256 x1", true},
		{"any number", Limit{-1, 0}, repeat(100, "r256 x256"), false},
		{"since the start", Limit{5, 0}, repeat(5, "r1000 x") + " r1000 x", true},
		{"since the start, just allowed", Limit{5, 0}, repeat(5, "r1000 x"), false},
		{"a batch larger than the window, evenly bad", Limit{10, 100}, repeat(100, "r256 x25"), false},
		{"a batch larger than the window", Limit{10, 100}, "r256 x26", true},
		{"rejected before anything is known to be read", Limit{0, 10}, "x", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := brake{limit: c.limit}
			words := strings.Fields(c.script)
			for i, w := range words {
				n := int64(1)
				fmt.Sscan(w[1:], &n)
				if w[0] == 'r' {
					b.read(n)
					continue
				}
				for k := range n {
					last := i == len(words)-1 && k == n-1
					if ok := b.reject(); ok == (last && c.trips) {
						t.Fatalf("at %q (%d of it): allowed %t; %s", w, k+1, ok, &b)
					}
				}
			}
		})
	}
}

// However much is read, a brake keeps a bounded number of blocks, and what it
// covers is its window and less than two blocks more.
func TestBrakeIsBounded(t *testing.T) {
	for _, c := range []struct{ of, read int64 }{{10_000, 1}, {10_000, 256}, {100, 1}, {100, 256}, {3, 1}, {0, 256}, {1 << 40, 256}} {
		b := brake{limit: Limit{N: 1, Of: c.of}}
		for i := range 50_000 {
			b.read(c.read)
			if i%7 == 0 {
				b.reject()
			}
			if len(b.blocks) > 2*precision {
				t.Fatalf("window %d, reads of %d: %d blocks", c.of, c.read, len(b.blocks))
			}
			if most := c.of + 2*max(c.read, c.of/precision+c.read); c.of > 0 && b.covered > most {
				t.Fatalf("window %d, reads of %d: %d records are covered, want at most %d", c.of, c.read, b.covered, most)
			}
		}
		var read, rejected int64
		for _, k := range b.blocks {
			read, rejected = read+k.read, rejected+k.rejected
		}
		if read != b.covered || rejected != b.rejected {
			t.Fatalf("window %d, reads of %d: the blocks hold %d and %d, and %d and %d are told", c.of, c.read, read, rejected, b.covered, b.rejected)
		}
	}
}
