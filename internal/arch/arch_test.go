// Package arch holds the tree to its rules: which package may import which, how
// long a file and a function may be, one package doc each. It has nothing but
// tests, in a folder of its own, where they are built in a moment.
package arch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weirstream/weir"

// The limits of a file and of a function, in lines. A function that needs
// more says why beside itself, as //nolint:funlen // the reason, which the
// linter reads too; a file says it in longFiles.
const (
	maxFile     = 500
	maxFunction = 60
)

// longFiles are the files that may be longer than maxFile, and why.
var longFiles = map[string]string{}

type importRule struct {
	folder  string // itself and what lies below
	allowed []string
	why     string
}

// imports says what the packages of a folder may import of this module: these
// folders and what lies below them. The first rule that matches a folder is
// its rule; a folder without one fails, so that a new package finds its place
// here first. "." is the root package alone.
var imports = []importRule{
	{"internal/sys", []string{"internal/sys"}, "the edge to the machine knows nothing of streams"},
	{"internal/table", []string{"internal/sys"}, "the state table lies below the path of a record"},
	{"internal/plan", []string{"window", "internal/sys"}, "a plan is data, and knows nothing of how it is run"},
	{"internal/data", []string{"internal/data", "internal/table", "internal/plan", "internal/sys"},
		"the path of a record never calls control"},
	{"internal/arch", nil, "it reads the files, and imports none"},
	{"internal/control/epoch", nil, "decisions are pure: events in, decisions out"},
	{"internal/control/store", []string{"internal/control/log", "internal/data", "internal/table", "internal/plan", "internal/sys"},
		"who looks at a store runs nothing"},
	{"internal/control", []string{"internal/control", "internal/data", "internal/table", "internal/plan", "internal/sys"},
		"the path of an epoch drives data, through the root's types never"},
	{"internal/sim", []string{"internal/sim", "internal/sys"}, "a simulated machine stands in for sys"},
	{"internal/process", nil, "a process is known from outside"},
	{"internal/kafkalab", []string{"internal/sys"}, "brokers, cuts and an independent reader know nothing of streams"},
	{"internal/chaos/kafka/mixed", []string{".", "cli", "codec", "connector", "window"}, "a job is written as a user would write it"},
	{"internal/chaos", []string{"internal/chaos", "internal/kafkalab", "internal/sim", "internal/sys"},
		"it runs the real binary from outside, and its oracle shares no code with it"},
	{"agg", []string{"internal/sys"}, "leaves are values used in calls"},
	{"codec/fastjson", []string{"codec"}, "a codec of its own falls back on the default one"},
	{"codec", []string{"internal/sys"}, "leaves are values used in calls"},
	{"window", []string{"internal/sys"}, "leaves are values used in calls"},
	{".", []string{"agg", "codec", "window", "internal/control", "internal/data", "internal/table", "internal/plan", "internal/sys"},
		"the root lowers a job; connectors and the command line come from outside"},
	{"connector/connectortest", []string{".", "internal/sim", "internal/sys"}, "the conformance suite knows no connector"},
	{"connector", []string{".", "connector", "codec", "internal/sys"}, "a connector is written against the public API"},
	{"weirtest", []string{".", "internal/control", "internal/data", "internal/plan", "internal/sim", "internal/sys"},
		"tests of a user's pipeline drive the real engine, on a machine that they can crash"},
	{"cli", []string{".", "internal/control", "internal/data", "internal/plan", "internal/sys"},
		"the verbs know no connector: the user's binary chooses"},
	{"cmd", []string{".", "cli", "connector", "internal"}, "a program may use everything"},
	{"bench", []string{"bench", ".", "agg", "cli", "codec", "connector", "window", "internal"}, "a program may use everything"},
	{"examples", []string{".", "agg", "cli", "codec", "connector", "weirtest", "window"},
		"an example shows what a user can write, so it imports nothing internal"},
}

// unwanted is what must not be linked into a program for importing the
// library alone.
var unwanted = []string{
	"database/sql", "net/http", "os/exec", "testing",
	"github.com/spf13/cobra", "github.com/spf13/pflag", "modernc.org/sqlite",
	"github.com/prometheus", "go.opentelemetry.io/otel/sdk",
	module + "/cli", module + "/connector", module + "/weirtest",
}

// A source is one parsed Go file of the module.
type source struct {
	name string // slash-separated, from the root
	set  *token.FileSet
	file *ast.File
}

func (s source) folder() string { return path.Dir(s.name) }
func (s source) test() bool     { return strings.HasSuffix(s.name, "_test.go") }

// TestMain runs the tests in the module's root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sources parses every Go file of the module, tests included.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name == "build" { // make's; a broker that runs there changes it meanwhile
				return filepath.SkipDir
			}
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || isModule(name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		all = append(all, source{filepath.ToSlash(name), set, file})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d Go files: is the test run in the module's root?", len(all))
	}
	return all
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// within reports whether folder is dir or lies below it; nothing lies below
// the root package.
func within(folder, dir string) bool {
	return folder == dir || dir != "." && strings.HasPrefix(folder, dir+"/")
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		i := slices.IndexFunc(imports, func(r importRule) bool { return within(s.folder(), r.folder) })
		if i < 0 {
			t.Errorf("%s: no rule says what %s may import: add one to the table in arch_test.go", s.name, s.folder())
			continue
		}
		for _, spec := range s.file.Imports {
			to, ok := inModule(t, spec)
			if !ok || to == s.folder() {
				continue
			}
			if s.test() {
				if to == "." && within(s.folder(), "internal") {
					t.Errorf("%s imports the root package: nothing under internal/ does, not even a test", s.name)
				}
				continue // a test may otherwise use what it needs to look from outside
			}
			if !slices.ContainsFunc(imports[i].allowed, func(a string) bool { return within(to, a) }) {
				t.Errorf("%s imports %s: %s", s.name, to, imports[i].why)
			}
		}
	}
}

// inModule returns the folder that an import names, if it is of this module.
func inModule(t *testing.T, spec *ast.ImportSpec) (string, bool) {
	t.Helper()
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		t.Fatal(err)
	}
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

// TestLibraryLinksLittle looks at everything that the root package brings
// with it, other modules' packages included.
func TestLibraryLinksLittle(t *testing.T) {
	var stderr bytes.Buffer
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, u := range unwanted {
			if within(dep, u) {
				t.Errorf("importing the library links %s: only the package that needs it may, in the program that imports that", dep)
			}
		}
	}
}

// TestEpochIsPure holds the decisions about epochs to no I/O, no clock and no
// goroutine, so that a test, a simulator and a trace checker can step them.
func TestEpochIsPure(t *testing.T) {
	const folder = "internal/control/epoch"
	pure := []string{"cmp", "encoding/hex", "errors", "fmt", "iter", "maps", "math", "slices", "sort", "strconv", "strings", "time"}
	found := false
	for _, s := range sources(t) {
		if s.folder() != folder || s.test() {
			continue
		}
		found = true
		for _, spec := range s.file.Imports {
			if name, _ := strconv.Unquote(spec.Path.Value); !slices.Contains(pure, name) {
				t.Errorf("%s imports %s: decisions get what happened as events and do nothing themselves", s.name, name)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "starts a goroutine"
			case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				what = "uses a channel"
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(
					[]string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
					what = "reads the clock"
				}
			}
			if what != "" {
				t.Errorf("%s: %s: decisions are pure", s.set.Position(n.Pos()), what)
			}
			return true
		})
	}
	if !found {
		t.Errorf("no file in %s: if the decisions moved, this test must follow", folder)
	}
}

func TestOnePackageDoc(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		if _, ok := docs[s.folder()]; !ok {
			docs[s.folder()] = nil
		}
		if s.file.Doc == nil {
			continue
		}
		docs[s.folder()] = append(docs[s.folder()], s.name)
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "" // a program's doc starts with what it does
		}
		if !strings.HasPrefix(s.file.Doc.Text(), want) {
			t.Errorf("%s: the package doc must start with %q", s.name, want)
		}
	}
	for folder, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s has %d package docs %v: exactly one file says what a package is for", folder, len(files), files)
		}
	}
}

func TestLengths(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		lines := s.set.File(s.file.FileStart).LineCount()
		if _, ok := longFiles[s.name]; ok != (lines > maxFile) {
			t.Errorf("%s has %d lines, the limit is %d, listed as an exception: %t", s.name, lines, maxFile, ok)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || excused(s, f) {
				continue
			}
			if n := length(s, f); n > maxFunction {
				t.Errorf("%s: %s has %d lines, the limit is %d: what does it mix?", s.set.Position(f.Pos()), f.Name.Name, n, maxFunction)
			}
		}
	}
}

// length counts the lines between a function's first and last, without those
// that only hold comments.
func length(s source, f *ast.FuncDecl) int {
	line := func(p token.Pos) int { return s.set.Position(p).Line }
	n := line(f.End()) - line(f.Pos()) - 1
	for _, c := range s.file.Comments {
		if c.Pos() > f.Body.Pos() && c.End() < f.Body.End() && s.set.Position(c.Pos()).Column <= firstColumn(s, f, c.Pos()) {
			n -= line(c.End()) - line(c.Pos()) + 1
		}
	}
	return n
}

// firstColumn returns the column where code starts on the line of p, or a
// large number where the line holds only a comment.
func firstColumn(s source, f *ast.FuncDecl, p token.Pos) int {
	first, at := 1<<20, s.set.Position(p).Line
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		for _, q := range []token.Pos{n.Pos(), n.End() - 1} {
			if pos := s.set.Position(q); pos.Line == at {
				first = min(first, pos.Column)
			}
		}
		return true
	})
	return first
}

// excused reports whether a comment directly above or behind the function's
// first line gives a reason for its length.
func excused(s source, f *ast.FuncDecl) bool {
	at := s.set.Position(f.Name.Pos()).Line
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if l := s.set.Position(c.Pos()).Line; l != at && l != at-1 {
				continue
			}
			if _, after, ok := strings.Cut(c.Text, "//nolint:funlen"); ok && strings.Contains(after, "// ") {
				return true
			}
		}
	}
	return false
}
