package sys_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/sys"
)

// lockIn makes the test binary a process that locks in a folder and waits.
const lockIn = "SYS_TEST_LOCK_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockIn); dir != "" {
		os.Exit(holdLock(dir))
	}
	os.Exit(m.Run())
}

func holdLock(dir string) int {
	f, err := sys.OpenFiles(dir)
	if err == nil {
		_, err = f.Lock("LOCK")
	}
	fmt.Println("locked:", err)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone or kills us
	return 1
}

func TestOSLockEndsWithTheProcess(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), lockIn+"="+dir)
	_, err = cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "locked: <nil>\n" {
		t.Fatalf("the other process says %q, error %v", line, err)
	}
	f, err := sys.OpenFiles(dir)
	must(t, err)
	_, err = f.Lock("LOCK")
	wants(t, "lock", err, sys.ErrLocked, filepath.Join(dir, "LOCK"))
	if want := fmt.Sprintf("process %d since 20", cmd.Process.Pid); err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %q doesn't say %q", err, want)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	l, err := f.Lock("LOCK")
	must(t, err)
	if got, want := content(t, f, "LOCK"), fmt.Sprintf("process %d since ", os.Getpid()); !strings.HasPrefix(got, want) {
		t.Errorf("the lock's file holds %q, want %q", got, want)
	}
	must(t, errors.Join(l.Close(), f.Close()))
}

func TestOSModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := t.TempDir()
	f, err := sys.OpenFiles(filepath.Join(dir, "a", "b"))
	must(t, err)
	must(t, f.Mkdir("c/d"))
	create(t, f, "c/d/x", "")
	l, err := f.Lock("LOCK")
	must(t, err)
	for name, want := range map[string]os.FileMode{"a": 0o700, "a/b": 0o700, "a/b/c": 0o700, "a/b/c/d": 0o700,
		"a/b/c/d/x": 0o600, "a/b/LOCK": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: mode %v, want %v", name, got, want)
		}
	}
	must(t, errors.Join(l.Close(), f.Close()))
}

func TestOSSymbolicLinksStayInside(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600))
	f, err := sys.OpenFiles(filepath.Join(dir, "in"))
	must(t, err)
	must(t, os.Symlink(dir, filepath.Join(dir, "in", "out")))
	if _, err := f.Open("out/secret"); err == nil {
		t.Error("a symbolic link led out of the folder")
	}
	if err := f.Remove("out/secret"); err == nil {
		t.Error("a file outside of the folder was removed")
	}
	must(t, f.Close())
}

func TestOSOpenFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, name := range []string{"file", "file/below"} {
		if _, err := sys.OpenFiles(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
			t.Errorf("open %s: got error %v, want one that names it", name, err)
		}
	}
	t.Chdir(dir)
	f, err := sys.OpenFiles("here")
	must(t, err)
	create(t, f, "x", "1")
	must(t, f.Close())
	f, err = sys.OpenFiles(filepath.Join(dir, "here"))
	must(t, err)
	lists(t, f, ".", "x")
	must(t, f.Close())
}

// TestOSFolderGone: a folder that somebody removes while it is in use is named.
func TestOSFolderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f, err := sys.OpenFiles(dir)
	must(t, err)
	must(t, os.RemoveAll(dir))
	if _, err := f.Create("x"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "the folder "+dir+" is gone") {
		t.Errorf("create: %v", err)
	}
	if err := f.Mkdir("x"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "the folder "+dir+" is gone") {
		t.Errorf("mkdir: %v", err)
	}
	must(t, f.Close())
}
