// Package secrets_test runs a job with a password and a token that are canaries,
// lets it fail in all the ways that a connection can, and then looks for them in
// everything that the job has left: what it printed, logged and answered, what lies
// in its state folder and what it wrote to the cluster.
package secrets_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spellings are the forms in which a secret could turn up: as it is, in base64 at
// each of the three offsets that it can have in what was encoded, in hex, in a URL,
// in JSON.
func spellings(secret string) (all [][]byte) {
	texts := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret))}
	if b, err := json.Marshal(secret); err == nil {
		texts = append(texts, strings.Trim(string(b), `"`))
	}
	for offset := range 3 {
		// The letters at both ends hold bits of their neighbours, too.
		padded := strings.Repeat("\x00", offset) + secret
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			texts = append(texts, enc.EncodeToString([]byte(padded))[(offset*8+5)/6:len(padded)*8/6])
		}
	}
	for _, s := range texts {
		all = append(all, []byte(strings.ToLower(s)))
	}
	return all
}

// leaks returns the secret that text holds in any form and any case, or "".
func leaks(text []byte, secrets []string) string {
	text = bytes.ToLower(text)
	for _, secret := range secrets {
		for _, s := range spellings(secret) {
			if bytes.Contains(text, s) {
				return secret
			}
		}
	}
	return ""
}

// grep looks for secrets in all files below dir, in their names and in their
// links, and wants at least so many files.
func grep(t *testing.T, dir string, atLeast int, secrets ...string) {
	t.Helper()
	files, size := 0, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if s := leaks([]byte(path), secrets); s != "" {
			t.Errorf("the name %s shows the secret %q", path, s)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		size += len(b)
		if s := leaks(b, secrets); s != "" {
			t.Errorf("%s shows the secret %q:\n%s", path, s, around(b, s))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < atLeast {
		t.Errorf("only %d files were looked through, want at least %d: what should have been there?", files, atLeast)
	}
	t.Logf("%d files with %d bytes don't show %d secrets", files, size, len(secrets))
}

func around(b []byte, secret string) []byte {
	for _, s := range spellings(secret) {
		if i := bytes.Index(bytes.ToLower(b), s); i >= 0 {
			return b[max(i-200, 0):min(i+200, len(b))]
		}
	}
	return nil
}

// A grep that finds nothing proves nothing unless it would have found it.
func TestLeaksAreFound(t *testing.T) {
	const secret = `c4n4ry/+"<pass> word`
	for _, before := range []string{"", "a", "ab", "abc", "\x00ada\x00"} {
		text := before + secret + "behind"
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for name, written := range map[string]string{
			"plain": text, "upper case": strings.ToUpper(text), "JSON": string(quoted), "hex": hex.EncodeToString([]byte(text)),
			"base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64 for URLs": base64.URLEncoding.EncodeToString([]byte(text)),
			"URL": "http://x/?p=" + url.QueryEscape(text),
		} {
			if leaks([]byte("some "+written+" more"), []string{"other", secret}) != secret {
				t.Errorf("%s of %q isn't found: %s", name, text, written)
			}
		}
	}
	if s := leaks([]byte("c4n4ry pass word"), []string{secret}); s != "" {
		t.Errorf("%q was found where it isn't", s)
	}
}
