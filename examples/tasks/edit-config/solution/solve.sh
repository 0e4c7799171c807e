#!/bin/bash
sed -i \
  -e '/^\[workers\]/,/^\[/ s/^timeout = .*/timeout = 300/' \
  -e 's/^prefetch = 4/prefetch = 2/' \
  -e '/^prefetch/ a max_attempts = 5' \
  -e 's/^bucket = thumbs-staging/bucket = thumbs-live/' \
  -e '/^legacy_acl/ d' \
  -e 's/^level = DEBUG/level = INFO/' \
  worker.ini
