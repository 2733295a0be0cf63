package kafka

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// spellings are the forms in which a secret could turn up somewhere: as it is, in
// base64 at each of the three offsets that it can have in what was encoded, in hex,
// in a URL, in JSON.
func spellings(secret string) []string {
	all := []string{secret, url.QueryEscape(secret), hex.EncodeToString([]byte(secret))}
	if b, err := json.Marshal(secret); err == nil {
		all = append(all, strings.Trim(string(b), `"`))
	}
	for offset := range 3 {
		// The letters at both ends hold bits of the neighbours, too.
		padded := strings.Repeat("\x00", offset) + secret
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := enc.EncodeToString([]byte(padded))
			all = append(all, s[(offset*8+5)/6:len(padded)*8/6])
		}
	}
	return all
}
