"""Secrets to plant in sessions, made from a seed: no text of this repository looks like one."""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BASE64 = ALNUM + "+/"
URLSAFE = ALNUM + "-_"

Draw = random.Random


def pick(draw: Draw, letters: str, length: int) -> str:
    """Random characters, with letters and digits among them as a real key has them."""
    while True:
        text = "".join(draw.choices(letters, k=length))
        if sum(c.isdigit() for c in text) > 1 and sum(c.isalpha() for c in text) > 1:
            return text


def pem(draw: Draw, label: str, lines: int) -> str:
    body = "\n".join(pick(draw, BASE64, 64) for _ in range(lines))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    make: Callable[[Draw], str]
    places: tuple[str, ...] = ()
    """Texts with {} for the secret; for a kind that is known by what stands around it. Others may be anywhere."""
    has_form: bool = True
    """Whether a rule can know it: by a prefix, by its structure, or by the name in front of it."""


ANYWHERE = (
    "export SERVICE={}",
    "I pasted it here: {} - please use it",
    "curl -s https://api.shop.dev/v1/items?key={}&page=2",
    "curl -H 'Authorization: Bearer {}' https://api.shop.dev",
    "DEBUG config loaded: client(value='{}', retries=3)",
    '+VALUE = "{}"\n-VALUE = None',
    "service:\n  value: {}\n  region: eu",
    "login --with {} --yes",
    "error: 401 for {}: expired",
    "| name | value |\n| main | `{}` |",
)

KINDS = (
    Kind("anthropic", lambda d: f"sk-ant-api03-{pick(d, URLSAFE, 93)}AA"),
    Kind("openai-project", lambda d: f"sk-proj-{pick(d, URLSAFE, 74)}T3BlbkFJ{pick(d, URLSAFE, 74)}"),
    Kind("openai-legacy", lambda d: f"sk-{pick(d, ALNUM, 20)}T3BlbkFJ{pick(d, ALNUM, 20)}"),
    Kind("openrouter", lambda d: f"sk-or-v1-{pick(d, HEX, 64)}"),
    Kind("groq", lambda d: f"gsk_{pick(d, ALNUM, 52)}"),
    Kind("xai", lambda d: f"xai-{pick(d, ALNUM, 80)}"),
    Kind("perplexity", lambda d: f"pplx-{pick(d, ALNUM, 48)}"),
    Kind("replicate", lambda d: f"r8_{pick(d, ALNUM, 37)}"),
    Kind("huggingface", lambda d: f"hf_{pick(d, string.ascii_letters + '0123', 34)}"),
    Kind("google-api", lambda d: f"AIza{pick(d, URLSAFE, 35)}"),
    Kind("google-client-secret", lambda d: f"GOCSPX-{pick(d, URLSAFE, 28)}"),
    Kind("google-access-token", lambda d: f"ya29.a0{pick(d, URLSAFE, 120)}"),
    Kind("github-classic", lambda d: f"ghp_{pick(d, ALNUM, 36)}"),
    Kind("github-app", lambda d: f"ghs_{pick(d, ALNUM, 36)}"),
    Kind("github-fine-grained", lambda d: f"github_pat_{pick(d, ALNUM, 22)}_{pick(d, ALNUM, 59)}"),
    Kind("gitlab-personal", lambda d: f"glpat-{pick(d, URLSAFE, 20)}"),
    Kind("gitlab-runner", lambda d: f"glrt-{pick(d, URLSAFE, 20)}"),
    Kind("npm", lambda d: f"npm_{pick(d, ALNUM, 36)}"),
    Kind("pypi", lambda d: f"pypi-AgEIcHlwaS5vcmc{pick(d, URLSAFE, 150)}"),
    Kind("docker-hub", lambda d: f"dckr_pat_{pick(d, URLSAFE, 27)}"),
    Kind("slack-bot", lambda d: f"xoxb-{d.randrange(10**12)}-{d.randrange(10**12)}-{pick(d, ALNUM, 24)}"),
    Kind("slack-app", lambda d: f"xapp-1-A{pick(d, UPPER, 10)}-{d.randrange(10**13)}-{pick(d, HEX, 64)}"),
    Kind(
        "slack-webhook",
        lambda d: f"T{pick(d, UPPER, 8)}/B{pick(d, UPPER, 8)}/{pick(d, ALNUM, 24)}",
        ("curl -X POST https://hooks.slack.com/services/{}", 'webhook: "https://hooks.slack.com/services/{}"'),
    ),
    Kind(
        "discord-webhook",
        lambda d: pick(d, URLSAFE, 68),
        ("https://discord.com/api/webhooks/112233445566778899/{}",) * 2,
    ),
    Kind("discord-bot", lambda d: f"M{pick(d, ALNUM, 23)}.{pick(d, URLSAFE, 6)}.{pick(d, ALNUM, 27)}"),
    Kind("stripe-live", lambda d: f"sk_live_{pick(d, ALNUM, 24)}"),
    Kind("stripe-restricted", lambda d: f"rk_live_{pick(d, ALNUM, 99)}"),
    Kind("stripe-webhook", lambda d: f"whsec_{pick(d, ALNUM, 32)}"),
    Kind("square", lambda d: f"sq0csp-{pick(d, URLSAFE, 43)}"),
    Kind("shopify", lambda d: f"shpat_{pick(d, HEX, 32)}"),
    Kind("sendgrid", lambda d: f"SG.{pick(d, URLSAFE, 22)}.{pick(d, URLSAFE, 43)}"),
    Kind("mailgun", lambda d: f"key-{pick(d, HEX, 32)}"),
    Kind("mailchimp", lambda d: f"{pick(d, HEX, 32)}-us{d.randrange(10, 20)}"),
    Kind("twilio", lambda d: f"SK{pick(d, HEX, 32)}"),
    Kind("telegram", lambda d: f"{d.randrange(10**8, 10**9)}:AA{pick(d, URLSAFE, 33)}"),
    Kind("digitalocean", lambda d: f"dop_v1_{pick(d, HEX, 64)}"),
    Kind("databricks", lambda d: f"dapi{pick(d, HEX, 32)}"),
    Kind("linear", lambda d: f"lin_api_{pick(d, ALNUM, 40)}"),
    Kind("notion", lambda d: f"ntn_{pick(d, ALNUM, 46)}"),
    Kind("atlassian", lambda d: f"ATATT3xFfGF0{pick(d, URLSAFE, 160)}={pick(d, HEX, 8).upper()}"),
    Kind("artifactory", lambda d: f"AKCp{pick(d, ALNUM, 69)}"),
    Kind("doppler", lambda d: f"dp.pt.{pick(d, ALNUM, 43)}"),
    Kind("vault", lambda d: f"hvs.{pick(d, URLSAFE, 95)}"),
    Kind("age", lambda d: f"AGE-SECRET-KEY-1{pick(d, 'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L', 58)}"),
    Kind("new-relic", lambda d: f"NRAK-{pick(d, UPPER, 27)}"),
    Kind("grafana", lambda d: f"glsa_{pick(d, ALNUM, 32)}_{pick(d, HEX, 8)}"),
    Kind("sentry", lambda d: f"sntrys_{encode(json.dumps({'iat': d.random()}))}_{pick(d, ALNUM, 43)}"),
    Kind("planetscale", lambda d: f"pscale_tkn_{pick(d, URLSAFE, 43)}"),
    Kind("supabase", lambda d: f"sbp_{pick(d, HEX, 40)}"),
    Kind("aws-key-id", lambda d: f"AKIA{pick(d, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', 16)}"),
    Kind("jwt", lambda d: f"eyJ{pick(d, URLSAFE, 33)}.eyJ{pick(d, URLSAFE, 90)}.{pick(d, URLSAFE, 43)}"),
    Kind("rsa-key", lambda d: pem(d, "RSA PRIVATE KEY", 8), ("$ cat server.pem\n{}\n", "key: |\n{}\nport: 1")),
    Kind("ssh-key", lambda d: pem(d, "OPENSSH PRIVATE KEY", 5), ("{}", "here is the deploy key\n\n{}\n\nuse it")),
    Kind("pgp-key", lambda d: pem(d, "PGP PRIVATE KEY BLOCK", 9), ("gpg --import <<E\n{}\nE",) * 2),
    Kind(
        "aws-secret",
        lambda d: pick(d, BASE64, 40),
        ("[default]\naws_secret_access_key = {}", 'AWS_SECRET_ACCESS_KEY="{}" aws s3 ls', '"SecretAccessKey": "{}"'),
    ),
    Kind("aws-session", lambda d: f"IQoJb3JpZ2lu{pick(d, BASE64, 320)}==", ("export AWS_SESSION_TOKEN={}",) * 2),
    Kind(
        "azure-storage",
        lambda d: f"{pick(d, BASE64, 86)}==",
        ("AccountName=shop;AccountKey={};EndpointSuffix=core",) * 2,
    ),
    Kind(
        "azure-sas",
        lambda d: f"{pick(d, ALNUM, 41)}%2B{d.choice(ALNUM)}%3D",
        ("https://shop.blob.core.windows.net/c/f?sv=2022-11-02&sp=r&sig={}&se=2030",) * 2,
    ),
    Kind(
        "azure-client",
        lambda d: f"{d.choice(ALNUM)}8Q~{pick(d, URLSAFE, 34)}",
        ("AZURE_CLIENT_SECRET={}", "client_secret: '{}'"),
    ),
    Kind(
        "gcp-service-account",
        lambda d: pem(d, "PRIVATE KEY", 12),
        ('{{"type": "service_account", "private_key": "{json}", "client_id": "1"}}',) * 2,
    ),
    Kind("kube-token", lambda d: pick(d, URLSAFE, 60), ("users:\n- name: dev\n  user:\n    token: {}",) * 2),
    Kind("kube-secret", lambda d: encode(pick(d, ALNUM, 18)), ("kind: Secret\ndata:\n  db-password: {}\n",) * 2),
    Kind(
        "docker-auth",
        lambda d: encode(f"bot:{pick(d, ALNUM, 20)}"),
        ('{{"auths": {{"r.shop.dev": {{"auth": "{}"}}}}}}',) * 2,
    ),
    Kind(
        "npmrc-password", lambda d: encode(pick(d, ALNUM, 20)), ("//r.shop.dev/:_password={}", "//r.shop.dev/:_auth={}")
    ),
    Kind("netrc", lambda d: pick(d, ALNUM, 14), ("machine git.shop.dev login ci password {}",) * 2),
    Kind("cloudflare", lambda d: pick(d, URLSAFE, 40), ("CLOUDFLARE_API_TOKEN={} wrangler deploy", "CF_API_KEY: {}")),
    Kind("heroku", lambda d: "-".join(pick(d, HEX, n) for n in (8, 4, 4, 4, 12)), ("HEROKU_API_KEY={} heroku ps",) * 2),
    Kind("sentry-dsn", lambda d: pick(d, HEX, 32), ("SENTRY_DSN=https://{}@o1.ingest.sentry.io/2",) * 2),
    Kind("django", lambda d: f"django-insecure-{pick(d, ALNUM + '@#%^*-_=+', 50)}", ("SECRET_KEY = '{}'",) * 2),
    Kind("hex-secret", lambda d: pick(d, HEX, 64), ("SESSION_SECRET={}", "  jwtSecret: '{}',", "secret_key_base: {}")),
    Kind(
        "totp",
        lambda d: pick(d, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32),
        ("otpauth://totp/shop:dev?secret={}&issuer=shop",) * 2,
    ),
    Kind(
        "postgres",
        lambda d: pick(d, ALNUM, 14),
        ("postgres://app:{}@db:5432/shop", "DATABASE_URL=postgresql+asyncpg://app:{}@db/x"),
    ),
    Kind("redis", lambda d: pick(d, ALNUM + "-", 16), ("redis://:{}@cache:6379/0",) * 2),
    Kind(
        "mongodb",
        lambda d: f"{pick(d, ALNUM, 9)}%21{pick(d, ALNUM, 5)}",
        ("mongodb+srv://app:{}@c0.shop.dev/x?w=majority",) * 2,
    ),
    Kind("bearer", lambda d: pick(d, URLSAFE, 40), ("Authorization: Bearer {}", '"authorization": "bearer {}"')),
    Kind(
        "basic",
        lambda d: encode(f"ann:{pick(d, ALNUM, 16)}"),
        ("Authorization: Basic {}", "-H 'Proxy-Authorization: Basic {}'"),
    ),
    Kind("api-key-header", lambda d: pick(d, ALNUM, 32), ("X-API-Key: {}", "curl -H 'x-auth-token: {}' shop.dev")),
    Kind(
        "cookie", lambda d: pick(d, URLSAFE, 43), ("Cookie: theme=dark; sessionid={}", "Set-Cookie: sid={}; HttpOnly")
    ),
    Kind(
        "url-token",
        lambda d: pick(d, URLSAFE, 32),
        ("GET /items?access_token={}&page=1", "https://shop.dev/cb?code=1&id_token={}"),
    ),
    Kind(
        "url-user",
        lambda d: pick(d, ALNUM, 32),
        ("git clone https://{}@git.shop.dev/a/b.git", "pip install --index-url https://{}@pypi.shop.dev/simple x"),
    ),
    Kind(
        "password-flag",
        lambda d: f"{pick(d, ALNUM, 8)}!{d.choice(ALNUM)}",
        ("mysql -u root -p{} shop", "sshpass -p '{}' ssh ci@host", "tool --password {}"),
    ),
    Kind(
        "curl-user",
        lambda d: pick(d, ALNUM, 13),
        ("curl -u admin:{} https://shop.dev/x", "curl --user 'ci:{}' https://shop.dev"),
    ),
    Kind(
        "password-env",
        lambda d: pick(d, ALNUM, 12),
        ("PGPASSWORD={} psql -h db", "MYSQL_PWD={} mysql", "env | grep DB\nDB_PASS={}"),
    ),
    Kind(
        "password-json",
        lambda d: pick(d, ALNUM + "!#", 14),
        ('{{"user": "ann", "password": "{}"}}', "{{'passwd': '{}'}}"),
    ),
    Kind(
        "password-prose",
        lambda d: f"{pick(d, ALNUM, 9)}",
        ("The admin password is {}.", "password for staging: {}", "log in as ann / pw: {}"),
    ),
    Kind(
        "connection-string",
        lambda d: pick(d, ALNUM + "#", 15),
        ("Server=db;Database=shop;User Id=sa;Password={};", "Uid=sa;Pwd={};Encrypt=yes"),
    ),
    Kind(
        "word-password",
        lambda d: "".join(d.choices(("blue", "horse", "lamp", "river", "stone", "cloud"), k=3)),
        ("the wifi is shopguest, {}",),
        has_form=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Planted:
    kind: Kind
    value: str
    text: str
    """Where it is."""

    def is_in(self, text: str) -> bool:
        """Whether the secret, or a piece of it that helps to guess the rest, is in a text."""
        return any(piece in text for piece in self._pieces())

    def _pieces(self) -> Iterator[str]:
        for line in self.value.split("\n"):
            if "-----" in line:
                continue
            size = 16 if len(line) > 40 else max(5, len(line) // 2 - 1)
            yield from (line[at : at + size] for at in range(len(line) - size, max(-1, len(line) - size - 30), -1))


def plant(seed: int, times: int = 2) -> list[Planted]:
    """Secrets of every kind, each in its places; those that may be anywhere in some of them."""
    draw = random.Random(seed)
    planted = []
    for kind in KINDS:
        places = kind.places or tuple(draw.sample(ANYWHERE, times))
        for place in places:
            value = kind.make(draw)
            text = place.replace("{json}", json.dumps(value)[1:-1]) if "{json}" in place else place.replace("{}", value)
            planted.append(Planted(kind, value, text.replace("{{", "{").replace("}}", "}")))
    return planted
