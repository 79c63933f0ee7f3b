"""from_pretrained of a model whose weights are not on this disk."""

from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("nobody/has-such-a-model").cuda()
