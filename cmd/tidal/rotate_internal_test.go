package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// TestSoakAndTimeout holds what --timeout counts: the time in which something else is
// waited for than the soak, and no soak is so long that it could not end.
func TestSoakAndTimeout(t *testing.T) {
	for _, tt := range []struct {
		name       string
		soak, most time.Duration
		clean      func(since time.Duration) bool // is no old connection open
		ends       time.Duration
		paused     bool
	}{
		{"a soak longer than the timeout", time.Hour, time.Minute, func(time.Duration) bool { return true }, time.Hour, false},
		{"clean after a while", time.Hour, time.Minute, func(d time.Duration) bool { return d > 30*time.Second }, time.Hour + 30*time.Second, false},
		{"never clean", time.Hour, time.Minute, func(time.Duration) bool { return false }, time.Minute, true},
		{"again and again", time.Hour, time.Minute, func(d time.Duration) bool { return d%(10*time.Minute) > 2*time.Second }, time.Hour + time.Minute, true},
		{"no soak", 0, time.Minute, func(d time.Duration) bool { return d > 30*time.Second }, 30 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var talk bytes.Buffer
				r := &rotation{a: &app{stdout: &talk, stderr: &talk}, soak: tt.soak, most: tt.most}
				begun := time.Now()
				err := r.through(t.Context(), api.RotateSoak, r.nothing, func(context.Context) ([]string, error) {
					if !tt.clean(time.Since(begun)) {
						return r.soaked([]string{"node a has an old connection"}), nil
					}
					return r.soaked(nil), nil
				})
				took := time.Since(begun)
				if took < tt.ends || took > tt.ends+2*time.Second {
					t.Errorf("it ends after %v, want %v\n%s", took, tt.ends, &talk)
				}
				if paused := codeOf(err) == exitPaused; paused != tt.paused {
					t.Errorf("paused is %t, want %t: %v", paused, tt.paused, err)
				}
				if strings.Count(talk.String(), "\n") > 20 {
					t.Errorf("it says too much:\n%s", &talk)
				}
			})
		})
	}
}
