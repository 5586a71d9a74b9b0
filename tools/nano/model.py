"""nano as a PyTorch module: the Llama architecture, small and plain, with Hugging Face's names.

What: `Nano`, whose state_dict has the names and shapes that LlamaForCausalLM loads, and `export`,
which writes config.json, generation_config.json and model.safetensors (bf16).

How: pre-norm RMSNorm, rotary positions (two halves), grouped-query attention, SwiGLU, embedding
tied to the head. q, k, v and gate, up are kept as separate weights but multiplied in one product.
"""

import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from tokenizer import CONTEXT, VOCAB, write_json

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": CONTEXT, "rope_theta": 10000.0, "rope_scaling": None,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "tie_word_embeddings": True, "initializer_range": 0.02,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "use_cache": True,
    "torch_dtype": "bfloat16",
}
GENERATION = {"bos_token_id": 0, "eos_token_id": [2, 0], "pad_token_id": 0, "do_sample": True,
              "temperature": 0.5, "top_p": 0.9, "max_new_tokens": 256}


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = (c["num_attention_heads"], c["num_key_value_heads"],
                                         c["head_dim"])
        self.q_proj = linear(c["hidden_size"], self.heads * self.dim)
        self.k_proj = linear(c["hidden_size"], self.kv * self.dim)
        self.v_proj = linear(c["hidden_size"], self.kv * self.dim)
        self.o_proj = linear(self.heads * self.dim, c["hidden_size"])

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        y = F.linear(x, weight).view(b, t, self.heads + 2 * self.kv, self.dim).transpose(1, 2)
        qk = rotate(y[:, :self.heads + self.kv], cos, sin)
        group = self.heads // self.kv
        k = qk[:, self.heads:].repeat_interleave(group, 1)
        v = y[:, self.heads + self.kv:].repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(qk[:, :self.heads], k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = linear(c["hidden_size"], c["intermediate_size"])
        self.up_proj = linear(c["hidden_size"], c["intermediate_size"])
        self.down_proj = linear(c["intermediate_size"], c["hidden_size"])

    def forward(self, x):
        weight = torch.cat((self.gate_proj.weight, self.up_proj.weight))
        gate, up = F.linear(x, weight).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Nano(nn.Module):
    """ids [batch, time] -> hidden [batch, time, hidden]; `head` makes logits of it."""

    def __init__(self, c=None):
        super().__init__()
        c = c or CONFIG
        self.model = Body(c)
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(),
                            c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"]))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        deep = (2 * c["num_hidden_layers"]) ** -0.5
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=c["initializer_range"] * 2 * (deep if out else 1))

    def forward(self, ids):
        t = ids.shape[1]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos[:t], self.sin[:t])
        return self.model.norm(x)

    def head(self, x):
        return F.linear(x, self.model.embed_tokens.weight)


def rounded(model):
    """The state_dict in bf16, as it is saved."""
    return {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}


def export(model, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "generation_config.json", GENERATION)
    save_file(rounded(model), str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
