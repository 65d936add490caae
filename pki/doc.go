// Package pki makes and reads the certificates of a tidal cluster: its
// authority, one leaf per node and per client, the trust bundle, and the TLS
// configurations in which nodes and clients prove to each other who they are.
//
// An identity is a URI in a verified certificate, spiffe://CLUSTER/node/ID or
// spiffe://CLUSTER/role/ROLE/NAME; common names mean nothing. The signing is
// softcas's; what it does not check (names, lifetimes, constraints, what is
// already there) is checked here.
//
// It may import the standard library, github.com/smallstep/certificates/cas
// (softcas and apiv1) and go.step.sm/crypto (x509util, keyutil, pemutil), and
// nothing of tidal.
package pki
