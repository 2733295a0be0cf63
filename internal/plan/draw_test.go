package plan

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// drawn are the graphs whose drawings are golden files.
func drawn() map[string]*Graph {
	return map[string]*Graph{"adclicks": adClicks(TransactionalSink, EmitBarrier), "branchy": branchy()}
}

func views() View {
	return View{Parallelism: 4, Splits: map[string]int{"clicks": 2, "app": 9}, Fates: map[string]string{
		"clicks": "kept", "seen": "kept", "per-minute": "migrated", "per-ad": "changed", "ad-minute": "not compared", "ad-total": "new"}}
}

func TestDrawings(t *testing.T) {
	for name, g := range drawn() {
		golden(t, name+".svg", g.SVG(views()))
		golden(t, name+".dot", g.DOT(views()))
		if a, b := g.SVG(views()), g.SVG(views()); a != b {
			t.Errorf("%s: two drawings differ", name)
		}
	}
}

// TestDrawingShowsEverything reads a drawing back: it is XML, nothing in it
// comes from elsewhere, and each step and setting is there.
func TestDrawingShowsEverything(t *testing.T) {
	for name, g := range drawn() {
		svg := g.SVG(views())
		d := xml.NewDecoder(strings.NewReader(svg))
		var text strings.Builder
		for {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch tok := tok.(type) {
			case xml.CharData:
				text.Write(tok)
				text.WriteByte(' ')
			case xml.StartElement:
				for _, a := range tok.Attr {
					if a.Name.Local == "href" || a.Name.Local == "src" || tok.Name.Local == "image" {
						t.Errorf("%s: %s refers to %s", name, tok.Name.Local, a.Value)
					}
				}
			}
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		for i, n := range g.Nodes {
			for _, want := range append([]string{n.ID, string(n.Op)}, strings.Fields(strings.Join(g.settings(i), ", "))...) {
				if !strings.Contains(words, want) && n.Side == "" {
					t.Errorf("%s: %q of %s isn't in the drawing", name, want, g.Name(i))
				}
			}
		}
	}
}

// TestNothingOverlaps: cards stay apart, and rows stay in their cards.
func TestNothingOverlaps(t *testing.T) {
	wide := &Graph{Job: "wide", KeyGroups: 8, Nodes: []Node{{Op: Source, ID: "s"}, {Op: KeyBy, Inputs: []int{0}}}}
	for i := range 30 {
		n := len(wide.Nodes)
		wide.Nodes = append(wide.Nodes, Node{Op: Count, ID: fmt.Sprint("c", i), Inputs: []int{1}}, Node{Op: KeyBy, Inputs: []int{n}},
			Node{Op: Count, ID: fmt.Sprint("d", i), Inputs: []int{n + 1}}, Node{Op: Sink, ID: fmt.Sprint("o", i), Inputs: []int{n + 2}, Sink: &SinkNode{Target: strings.Repeat("x", 200)}})
	}
	wide.Nodes = append(wide.Nodes, Node{Op: Sink, ID: "straight", Inputs: []int{0}, Sink: &SinkNode{}})
	for name, g := range map[string]*Graph{"wide": wide, "branchy": branchy(), "ad clicks": adClicks(TransactionalSink, EmitClose)} {
		p := g.layout(View{})
		for i, a := range p.cards {
			if a.x < 0 || a.y < 0 || a.x+cardWidth > p.w || a.y+a.h > p.h {
				t.Errorf("%s: card %d isn't in the picture", name, i)
			}
			for _, b := range p.cards[i+1:] {
				if a.level == b.level && a.y < b.y+b.h && b.y < a.y+a.h {
					t.Errorf("%s: cards %q and %q overlap", name, a.title, b.title)
				}
			}
			for _, r := range a.rows {
				if r.y+r.h > a.h || r.y < headHeight {
					t.Errorf("%s: %s isn't in its card", name, g.Name(r.node))
				}
			}
		}
		for _, j := range p.joins {
			for k, at := range j.way[1:] {
				if p.cards[at].level != p.cards[j.way[k]].level+1 {
					t.Errorf("%s: the edge from %s to %s passes over a column", name, g.Name(j.from), g.Name(j.to))
				}
			}
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, nil},
		{"short", 10, []string{"short"}},
		{"a few words that go on", 10, []string{"a few", "words that", "go on"}},
		{"/a/very/long/path/without/spaces", 10, []string{"/a/very/lo", "ng/path/wi", "thout/spac", "es"}},
		{"äöüßäöüß äöü", 8, []string{"äöüßäöüß", "äöü"}},
	} {
		if got := wrap(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("%q at %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func TestEscaped(t *testing.T) {
	g := &Graph{Job: `a<b>&"c`, KeyGroups: 1, Nodes: []Node{{Op: Source, ID: "s"},
		{Op: Sink, ID: "o", Inputs: []int{0}, Sink: &SinkNode{Kind: IdempotentSink, Target: "table \"x\" <&> \x00\n"}}}}
	d := xml.NewDecoder(strings.NewReader(g.SVG(View{})))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if dot := g.DOT(View{}); !strings.Contains(dot, `table \"x\"`) || strings.Count(dot, "\n") != 11 {
		t.Errorf("texts aren't quoted:\n%s", dot)
	}
}

// TestOnlyBehind: whether windows get all they have through a distinct step.
func TestOnlyBehind(t *testing.T) {
	window := func(g *Graph, in int) int {
		k := add(g, Node{Op: KeyBy, Inputs: []int{in}})
		return add(g, Node{Op: Window, ID: fmt.Sprint("w", k), Inputs: []int{k}, Size: time.Minute, Emit: EmitClose})
	}
	base := func() *Graph {
		return &Graph{Nodes: []Node{{Op: Source, ID: "a", EventTime: true}, {Op: KeyBy, Inputs: []int{0}}, {Op: Distinct, ID: "d", Inputs: []int{1}, TTL: time.Hour}}}
	}
	for _, c := range []struct {
		name string
		make func(g *Graph)
		want bool
	}{
		{"a window", func(g *Graph) { window(g, 2) }, true},
		{"two windows, one behind the other", func(g *Graph) { window(g, window(g, 2)) }, true},
		{"a union with what passed another way", func(g *Graph) {
			window(g, add(g, Node{Op: Union, Inputs: []int{0, 2}}))
		}, false},
		{"a union with another source", func(g *Graph) {
			s := add(g, Node{Op: Source, ID: "b", EventTime: true})
			window(g, add(g, Node{Op: Union, Inputs: []int{2, s}}))
		}, false},
		{"a sink", func(g *Graph) { add(g, Node{Op: Sink, ID: "o", Inputs: []int{2}}) }, false},
		{"another distinct step and a window", func(g *Graph) {
			k := add(g, Node{Op: KeyBy, Inputs: []int{2}})
			window(g, add(g, Node{Op: Distinct, ID: "e", Inputs: []int{k}, TTL: time.Hour}))
		}, true},
	} {
		g := base()
		c.make(g)
		if got := g.OnlyBehind(2); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
