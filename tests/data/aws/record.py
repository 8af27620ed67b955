"""Ask botocore what it makes of environments and files: `python record.py > botocore.json`, with botocore installed."""

import json
import os
import tempfile
from pathlib import Path

import botocore
import botocore.session

KEYS = "aws_access_key_id = AK\naws_secret_access_key = S/K+=\n"
LAB = "[profile lab]\nregion = eu-lab-1\nendpoint_url = http://config:80\n"
SERVICES = "[profile lab]\nservices = mine\nendpoint_url = http://config:80\n[services mine]\n"
S3 = "s3 =\n  endpoint_url = http://service:80\n  signature_version = s3v4\n"
EC2 = "ec2 =\n  endpoint_url = http://ec2:80\n"
# name -> (credentials, config, environment)
CASES = {
    "keys alone": (f"[lab]\n{KEYS}", None, {}),
    "keys and token": (f"[lab]\n{KEYS}aws_session_token = T==\n", None, {}),
    "keys in the configuration": (None, f"{LAB}{KEYS}", {}),
    "keys in both": (f"[lab]\n{KEYS}", f"{LAB}{KEYS.replace('AK', 'OTHER')}", {}),
    "keys of credentials, beside a section without": ("[lab]\nx = y\n", f"{LAB}{KEYS}", {}),
    "endpoint of a profile": (f"[lab]\n{KEYS}", LAB, {}),
    "endpoint of a service": (f"[lab]\n{KEYS}", SERVICES + S3, {}),
    "endpoint of a service after another": (f"[lab]\n{KEYS}", SERVICES + EC2 + S3, {}),
    "another service": (f"[lab]\n{KEYS}", SERVICES + EC2, {}),
    "services that are missing": (f"[lab]\n{KEYS}", "[profile lab]\nendpoint_url = http://config:80\n", {}),
    "variable for all": (f"[lab]\n{KEYS}", SERVICES + S3, {"AWS_ENDPOINT_URL": "http://all:80"}),
    "variable for S3": (
        f"[lab]\n{KEYS}", SERVICES + S3, {"AWS_ENDPOINT_URL": "http://all:80", "AWS_ENDPOINT_URL_S3": "http://s3:80"},
    ),
    "empty variable": (f"[lab]\n{KEYS}", LAB, {"AWS_ENDPOINT_URL_S3": ""}),
    "ignored by a variable": (f"[lab]\n{KEYS}", LAB, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
    "ignored by the profile": (
        f"[lab]\n{KEYS}", f"{LAB}ignore_configured_endpoint_urls = True\n", {"AWS_ENDPOINT_URL": "http://all:80"},
    ),
    "region by a variable": (f"[lab]\n{KEYS}", LAB, {"AWS_DEFAULT_REGION": "us-lab-2"}),
    "quoted names": (f"[lab]\n{KEYS}", LAB.replace("profile lab", 'profile "lab"'), {}),
    "settings beside the keys": (f"[lab]\n{KEYS}region = c-1\nendpoint_url = http://c:80\n", LAB, {}),
    "comments and spaces": (f"# c\n[lab]\n; c\n  \n{KEYS.replace(' = ', '=')}", "[profile   lab]\nregion=r-1\n", {}),
    "upper case": (f"[lab]\n{KEYS.replace('aws_secret', 'AWS_SECRET')}", LAB.replace("region", "REGION"), {}),
    "another section of the same name": (f"[lab]\n{KEYS}", "[lab]\nregion = r-1\n[profile other]\nregion = o-1\n", {}),
    "a section DEFAULT": (f"[DEFAULT]\nregion = d\n[lab]\n{KEYS}", "[DEFAULT]\nregion = e\n[profile lab]\nx = y\n", {}),
}
DEFAULT = LAB.replace("profile lab", "default")
OF_VARIABLES = {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "E/S"}
# the same without a profile that the program is given
BY_ENVIRONMENT = {
    "AWS_PROFILE": (f"[default]\n{KEYS.replace('AK', 'OTHER')}[lab]\n{KEYS}", LAB, {"AWS_PROFILE": "lab"}),
    "AWS_PROFILE with a token": (f"[lab]\n{KEYS}aws_session_token = T==\n", LAB, {"AWS_PROFILE": "lab"}),
    "variables beside AWS_PROFILE": (f"[lab]\n{KEYS}", LAB, {"AWS_PROFILE": "lab", **OF_VARIABLES}),
    "variables and the token of a profile": (
        f"[lab]\n{KEYS}aws_session_token = T==\n", LAB, {"AWS_PROFILE": "lab", **OF_VARIABLES},
    ),
    "variables with a token": (None, None, {**OF_VARIABLES, "AWS_SESSION_TOKEN": "E=="}),
    "default profile": (f"[default]\n{KEYS}", DEFAULT, {}),
    "default profile, named as all others": (f"[default]\n{KEYS}", LAB.replace("profile lab", "profile default"), {}),
    "default profile of both names": (f"[default]\n{KEYS}", f"[profile default]\nregion = p-1\n{DEFAULT}", {}),
    "variables beside the default profile": (f"[default]\n{KEYS}", DEFAULT, OF_VARIABLES),
    "URL of a variable beside the default profile": (
        f"[default]\n{KEYS}", DEFAULT, {"AWS_ENDPOINT_URL_S3": "http://s3:80"},
    ),
    "indented keys": (f"[default]\n  {KEYS.replace('aws_secret', '  aws_secret')}", None, {}),
    "signs of comments and quotes": (
        "[default]\naws_access_key_id = A#;K\naws_secret_access_key = \"S ; # 'K\\\n",
        None, {},
    ),
}


def answer(profile, credentials, config, environment):
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(environment, AWS_EC2_METADATA_DISABLED="true", HOME=folder)
        (Path(folder) / ".aws").mkdir()
        for name, text in (("credentials", credentials), ("config", config)):
            if text is not None:
                (Path(folder) / ".aws" / name).write_text(text)
        session = botocore.session.Session(profile=profile)
        client = session.create_client("s3")
        keys = session.get_credentials().get_frozen_credentials()
        url = client.meta.endpoint_url
        region = session.get_config_variable("region")
    return {"endpoint": None if "amazonaws" in url else url, "region": region, "keys": [*keys[:2], keys.token or ""]}


if __name__ == "__main__":
    tables = {"botocore": botocore.__version__}
    for table, profile, cases in (("cases", "lab", CASES), ("by_environment", None, BY_ENVIRONMENT)):
        tables[table] = {
            name: {**dict(zip(("credentials", "config", "environment"), case)), "botocore": answer(profile, *case)}
            for name, case in cases.items()
        }
    print(json.dumps(tables, indent=1))
