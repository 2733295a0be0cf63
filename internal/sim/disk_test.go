package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, m *sim.Machine, dir string) sys.Files {
	t.Helper()
	f, err := m.Env().Files(dir)
	must(t, err)
	return f
}

// play runs a script, one call a line: "create NAME", "write NAME TEXT", "sync
// NAME", "link FROM TO", and so on. Files stay open. A call whose line starts
// with ! must fail.
func play(t *testing.T, f sys.Files, script string) {
	t.Helper()
	handles := map[string]sys.File{}
	for line := range strings.Lines(script) {
		words := strings.Fields(strings.TrimSpace(line))
		if len(words) == 0 {
			continue
		}
		op, fails := strings.CutPrefix(words[0], "!")
		var err error
		switch a := words[1]; op {
		case "create":
			handles[a], err = f.Create(a)
		case "write":
			_, err = io.WriteString(handles[a], words[2])
		case "sync":
			err = handles[a].Sync()
		case "link":
			err = f.Link(a, words[2])
		case "rename":
			err = f.Rename(a, words[2])
		case "remove":
			err = f.Remove(a)
		case "mkdir":
			err = f.Mkdir(a)
		case "syncdir":
			err = f.SyncDir(a)
		default:
			t.Fatalf("no such call: %s", line)
		}
		if fails != (err != nil) {
			t.Fatalf("%s: got error %v", strings.TrimSpace(line), err)
		}
	}
}

// shows renders a disk as "name=content ...", with zeros as 0.
func shows(t *testing.T, d *sim.Disk) string {
	t.Helper()
	var all []string
	for _, name := range d.Names() {
		b, err := d.ReadAll(name)
		must(t, err)
		all = append(all, name+"="+strings.ReplaceAll(string(b), "\x00", "0"))
	}
	return strings.Join(all, " ")
}

func TestImages(t *testing.T) {
	for _, c := range []struct {
		name, script              string
		killed, lost, kept, names string
		zeros                     string
	}{
		{name: "a sync of a file doesn't make its name durable",
			script: "create x\nwrite x abcd\nsync x",
			killed: "x=abcd", kept: "x=abcd", names: "x=abcd", zeros: "x=abcd"},
		{name: "a sync of a folder doesn't make what is in its files durable",
			script: "create x\nwrite x abcd\nsyncdir .",
			killed: "x=abcd", lost: "x=", kept: "x=abcd", names: "x=", zeros: "x=0000"},
		{name: "both are durable",
			script: "create x\nwrite x abcd\nsync x\nsyncdir .\nwrite x ef",
			killed: "x=abcdef", lost: "x=abcd", kept: "x=abcdef", names: "x=abcd", zeros: "x=abcd00"},
		{name: "a link is durable by its own folder",
			script: "mkdir a\nmkdir b\nsyncdir .\ncreate a/x\nwrite a/x 1\nsync a/x\nlink a/x b/x\nsyncdir b",
			killed: "a/x=1 b/x=1", lost: "b/x=1", kept: "a/x=1 b/x=1", names: "a/x=1 b/x=1", zeros: "a/x=1 b/x=1"},
		{name: "a rename happens or doesn't",
			script: "create x\nwrite x 1\nsync x\ncreate y\nwrite y 2\nsync y\nsyncdir .\nrename x y",
			killed: "y=1", lost: "x=1 y=2", kept: "y=1", names: "y=1", zeros: "y=1"},
		{name: "a rename between folders is durable by the new one",
			script: "mkdir a\nmkdir b\ncreate a/x\nsyncdir a\nsyncdir .\nrename a/x b/x\nsyncdir a",
			killed: "b/x=", lost: "a/x=", kept: "b/x=", names: "b/x=", zeros: "b/x="},
		{name: "a later change of one name isn't undone by an older one",
			script: "mkdir a\nmkdir b\nsyncdir .\ncreate a/x\nwrite a/x 1\nsync a/x\nrename a/x b/x\n" +
				"create a/x\nwrite a/x 2\nsync a/x\nsyncdir a\nsyncdir b",
			killed: "a/x=2 b/x=1", lost: "a/x=2 b/x=1", kept: "a/x=2 b/x=1", names: "a/x=2 b/x=1", zeros: "a/x=2 b/x=1"},
		{name: "a removal comes back",
			script: "create x\nwrite x 1\nsync x\nsyncdir .\nremove x",
			lost:   "x=1"},
		{name: "a removal stays",
			script: "create x\nsyncdir .\nremove x\nsyncdir ."},
		{name: "what is durable in a folder goes with it",
			script: "mkdir a\ncreate a/x\nsync a/x\nsyncdir a",
			killed: "a/x=", kept: "a/x=", names: "a/x=", zeros: "a/x="},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sim.NewMachine(sim.NewDisk())
			play(t, open(t, m, "."), c.script)
			before := shows(t, m.Disk())
			for keep, want := range map[sim.Keep]string{sim.Killed(): c.killed, sim.Lost(): c.lost, sim.Kept(): c.kept,
				sim.Names(): c.names, sim.Zeros(): c.zeros} {
				image := m.Image(keep)
				if got := shows(t, image); got != want {
					t.Errorf("%v: got %q, want %q", keep, got, want)
				}
				again := sim.Lost() // an image of a power loss is durable, one of a kill is as it was
				if keep == sim.Killed() {
					want = c.lost
				}
				if got := shows(t, image.Image(again)); got != want {
					t.Errorf("%v, then %v: got %q, want %q", keep, again, got, want)
				}
			}
			if got := shows(t, m.Disk()); got != before {
				t.Errorf("taking images changed the disk from %q to %q", before, got)
			}
		})
	}
}

// TestRandomImages collects what many seeds give: it must be all that can
// happen, and nothing else.
func TestRandomImages(t *testing.T) {
	const seeds = 400
	t.Run("names", func(t *testing.T) {
		m := sim.NewMachine(sim.NewDisk())
		play(t, open(t, m, "."), "create a\ncreate b\nsyncdir .\nrename a c\nremove b\ncreate d")
		got := map[string]bool{}
		for seed := range uint64(seeds) {
			got[shows(t, m.Image(sim.Random(seed)))] = true
		}
		var want []string
		for _, ac := range []string{"a=", "c="} {
			for _, b := range []string{"", "b="} {
				for _, d := range []string{"", "d="} {
					parts := slices.DeleteFunc([]string{ac, b, d}, func(s string) bool { return s == "" })
					slices.Sort(parts)
					want = append(want, strings.Join(parts, " "))
				}
			}
		}
		slices.Sort(want)
		if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
			t.Errorf("got %q\nwant %q", have, want)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		const durable, all = 700, 2000
		m := sim.NewMachine(sim.NewDisk())
		f, err := open(t, m, ".").Create("x")
		must(t, err)
		content := bytes.Repeat([]byte("x"), all)
		_, err = f.Write(content[:durable])
		must(t, errors.Join(err, f.Sync(), open(t, m, ".").SyncDir(".")))
		_, err = f.Write(content[durable:])
		must(t, err)
		kinds := map[string]int{}
		for seed := range uint64(seeds) {
			image := m.Image(sim.Random(seed))
			b, err := image.ReadAll("x")
			must(t, err)
			whole := len(bytes.TrimRight(b, "\x00"))
			if whole < durable || len(b) > all || !bytes.Equal(b[:whole], content[:whole]) {
				t.Fatalf("seed %d: %d bytes, %d of them whole; %d are durable", seed, len(b), whole, durable)
			}
			kinds[tail(whole, len(b), durable, all)]++
			again, err := m.Image(sim.Random(seed)).ReadAll("x")
			must(t, err)
			if !bytes.Equal(again, b) {
				t.Fatalf("seed %d gives two images", seed)
			}
		}
		for _, kind := range []string{"all", "none", "part", "part and zeros", "only zeros", "blocks", "blocks and zeros"} {
			if kinds[kind] == 0 {
				t.Errorf("no seed gives %s: %v", kind, kinds)
			}
		}
	})
}

// tail names what became of a file's unsynced bytes.
func tail(whole, size, durable, all int) string {
	zeros := ""
	if size > whole {
		zeros = " and zeros"
	}
	switch {
	case whole == all:
		return "all"
	case whole == durable && zeros == "":
		return "none"
	case whole == durable:
		return "only zeros"
	case whole%512 == 0:
		return "blocks" + zeros
	}
	return "part" + zeros
}

func TestSyncThatFails(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	f := open(t, m, ".")
	x, err := f.Create("x")
	must(t, err)
	write := func(s string) {
		t.Helper()
		_, err := io.WriteString(x, s)
		must(t, err)
	}
	write("ab")
	must(t, errors.Join(x.Sync(), f.SyncDir(".")))
	write("cd")
	m.FailAt(m.Effects()+1, syscall.EIO)
	if err := x.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got error %v", err)
	}
	write("ef")
	for _, c := range []struct {
		what, lost, kept, killed string
	}{{"the sync failed", "x=ab", "x=ab00ef", "x=abcdef"}, {"a second sync worked", "x=ab00ef", "x=ab00ef", "x=abcdef"}} {
		for keep, want := range map[sim.Keep]string{sim.Lost(): c.lost, sim.Kept(): c.kept, sim.Killed(): c.killed} {
			if got := shows(t, m.Image(keep)); got != want {
				t.Errorf("%s, image %v: got %q, want %q", c.what, keep, got, want)
			}
		}
		if got := shows(t, m.Image(sim.Killed()).Image(sim.Kept())); got != c.kept {
			t.Errorf("%s, killed, then all kept: got %q, want %q", c.what, got, c.kept)
		}
		must(t, x.Sync())
	}
}

func TestCorrupt(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	f := open(t, m, "state/deep")
	play(t, f, "create x\nwrite x abcd\nsync x\nlink x y\nsyncdir .")
	d := m.Image(sim.Lost())
	const name = "state/deep/x"
	must(t, d.Flip(name, 1)) // a: 0x61 -> 0x63
	must(t, d.Flip(name, 9)) // b: 0x62 -> 0x60
	must(t, d.Flip(name, -8))
	if got, want := shows(t, d), "state/deep/x=c`ce state/deep/y=c`ce"; got != want {
		t.Errorf("flipped: got %q, want %q", got, want)
	}
	must(t, d.Truncate(name, 3))
	must(t, d.Truncate(name, -1))
	must(t, d.Remove("state/deep/y"))
	for _, after := range []*sim.Disk{d, d.Image(sim.Lost())} {
		if got, want := shows(t, after), "state/deep/x=c`"; got != want {
			t.Errorf("truncated, removed: got %q, want %q", got, want)
		}
	}
	if got, want := shows(t, m.Disk()), "state/deep/x=abcd state/deep/y=abcd"; got != want {
		t.Errorf("the disk that the image is of: got %q, want %q", got, want)
	}
	for what, err := range map[string]error{"flip": d.Flip(name, 16), "flip from the end": d.Flip(name, -17), "truncate": d.Truncate(name, 3),
		"remove": d.Remove("state/deep/y"), "flip a folder": d.Flip("state", 0)} {
		if err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("%s: got error %v", what, err)
		}
	}
}

func TestOpenFolder(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	must(t, open(t, m, "/var/state").Close())
	must(t, open(t, m, "var/state/").Close())
	var got []string
	for _, e := range m.Trace() {
		got = append(got, e.String())
	}
	want := []string{"1: mkdir var", "2: syncdir .", "3: mkdir var/state", "4: syncdir var", "5: syncdir var"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := m.Env().Files("../x"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got error %v", err)
	}
	create, err := open(t, m, ".").Create("file")
	must(t, err)
	must(t, create.Close())
	if _, err := m.Env().Files("file/below"); err == nil || !strings.Contains(fmt.Sprint(err), "file") {
		t.Errorf("a folder below a file: got error %v", err)
	}
}
