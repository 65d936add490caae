package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"
)

// clean makes text that came from outside harmless for a terminal: what would move
// its cursor, change its colours or turn its writing round is shown as numbers.
func clean(s string) string {
	if !strings.ContainsFunc(s, harmful) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case harmful(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case harmful(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// joiner holds emoji together, and hides nothing.
const joiner = '\u200d'

func harmful(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != joiner || r == '\u2028' || r == '\u2029'
}

// width returns how many cells text takes.
func width(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return lipgloss.Width(s)
		}
	}
	return len(s)
}

// cut returns the longest beginning of s that takes at most w cells.
func cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if width(s) <= w {
		return s
	}
	end := 0
	for i, r := range s {
		next := i + utf8.RuneLen(r)
		if width(s[:next]) > w {
			break
		}
		end = next
	}
	return s[:end]
}

// fit makes s take exactly w cells; what is too long ends with the mark.
func fit(s string, w int, right bool, mark string) string { //nolint:revive // the flag is the side
	if w <= 0 {
		return ""
	}
	n := width(s)
	if n > w {
		s = cut(s, w-width(mark)) + mark
		if n = width(s); n > w {
			s, n = cut(s, w), width(cut(s, w))
		}
	}
	if right {
		return strings.Repeat(" ", w-n) + s
	}
	return s + strings.Repeat(" ", w-n)
}

const none = "-"

// amount writes a number in at most five cells: 999, 1.2k, 45k, 1.2M.
func amount(n float64) string {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return none
	}
	units := []string{"", "k", "M", "G", "T", "P", "E"}
	if math.Abs(n) >= 999.5e18 {
		return strings.ReplaceAll(strconv.FormatFloat(n, 'e', 0, 64), "e+", "e")
	}
	i := 0
	for math.Abs(n) >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}
	if i == 0 && n == math.Trunc(n) || math.Abs(n) >= 99.95 {
		return strconv.FormatFloat(n, 'f', 0, 64) + units[i]
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + units[i]
}

// bytesText writes a number of bytes.
func bytesText(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + "B"
	}
	return amount(float64(n)) + "B"
}

// span writes a duration in at most five cells.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return none
	case d == 0:
		return "0s"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < 2*time.Minute:
		return strconv.FormatInt(int64(d.Seconds()), 10) + "s"
	case d < 2*time.Hour:
		return strconv.FormatInt(int64(d.Minutes()), 10) + "m"
	case d < 48*time.Hour:
		return strconv.FormatInt(int64(d.Hours()), 10) + "h"
	}
	return strconv.FormatInt(int64(d.Hours()/24), 10) + "d"
}

// minute returns the last minute of samples as n numbers, each the mean of those that
// there are of its part; NaN of none.
func minute(values []float64, every time.Duration, n int) []float64 {
	per := max(1, int(time.Minute/max(every, time.Millisecond))/max(n, 1))
	values = values[max(0, len(values)-per*n):]
	var out []float64
	for len(values) > 0 {
		size := len(values) % per
		if size == 0 {
			size = per
		}
		sum, count := 0.0, 0
		for _, v := range values[:size] {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				sum += v
				count++
			}
		}
		out = append(out, sum/float64(count)) // NaN if there were none
		values = values[size:]
	}
	return out
}

// bars draws the newest numbers in w cells, the largest as the highest bar. What is
// no number is a gap.
func bars(values []float64, w int, glyphs []string) string {
	if w <= 0 {
		return ""
	}
	values = values[max(0, len(values)-w):]
	top := 0.0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			top = max(top, v)
		}
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", w-len(values)))
	for _, v := range values {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0) || v < 0:
			b.WriteByte(' ')
		case top == 0 || v == 0:
			b.WriteString(glyphs[0])
		default:
			i := int(math.Ceil(v / top * float64(len(glyphs)-1)))
			b.WriteString(glyphs[min(max(i, 1), len(glyphs)-1)])
		}
	}
	return b.String()
}

// chart draws the newest numbers w cells wide and h lines high, from 0 up to top;
// larger ones are cut off there. What is no number is a gap.
func chart(values []float64, w, h int, top float64, glyphs []string) []string {
	values = values[max(0, len(values)-max(w, 0)):]
	out := make([]string, max(h, 0))
	steps := len(glyphs) - 1
	for row := range out {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", max(w, 0)-len(values)))
		floor := float64((h - 1 - row) * steps)
		for _, v := range values {
			if math.IsNaN(v) || v < 0 || top <= 0 {
				b.WriteByte(' ')
				continue
			}
			level := math.Ceil(min(v/top, 1) * float64(h*steps))
			switch part := int(level - floor); {
			case part >= steps:
				b.WriteString(glyphs[steps])
			case part > 0:
				b.WriteString(glyphs[part])
			case row == h-1:
				b.WriteString(glyphs[0])
			default:
				b.WriteByte(' ')
			}
		}
		out[row] = b.String()
	}
	return out
}
