package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag for a number of bytes: 4GiB, 500MB, 1.5TiB, 0.
type byteSize int64

// units are the factors of what may follow the number.
func units(unit string) (factor float64, ok bool) {
	switch strings.ToLower(unit) {
	case "", "b":
		return 1, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "tb":
		return 1e12, true
	case "ki", "kib":
		return 1 << 10, true
	case "mi", "mib":
		return 1 << 20, true
	case "gi", "gib":
		return 1 << 30, true
	case "ti", "tib":
		return 1 << 40, true
	}
	return 0, false
}

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	s = strings.TrimSpace(s)
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i < 0 {
		i = len(s)
	}
	n, err := strconv.ParseFloat(s[:i], 64)
	factor, ok := units(strings.TrimSpace(s[i:]))
	if err != nil || !ok {
		return errors.New("it must be a number of bytes with a unit, such as 500MB (a thousand thousands each) or 4GiB (1024 three times); 0: no limit")
	}
	if n *= factor; n > math.MaxInt64/2 {
		return fmt.Errorf("more than %d TiB can't be counted", math.MaxInt64/2>>40)
	}
	*b = byteSize(n)
	return nil
}

// String implements pflag.Value.
func (b *byteSize) String() string {
	if *b == 0 {
		return "0"
	}
	return size(int64(*b))
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }
